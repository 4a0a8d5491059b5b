"""Every kind of answer has the same steps in this process and in micro-batches on a rank."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data_prep.errors import UsageError
from data_prep.vectors.table import VectorTable
from pipeline.config.schema import Config
from pipeline.encoders import random_encoder
from pipeline.stages import tuning
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.finetuned import Finetuned
from pipeline.tasks.summary import chosen_on_scored
from tests.pipeline.stages.test_finetune_loops import (
    TUNING,
    WITHOUT_DROPOUT,
    WORDS,
    losses,
    rank_in_this_process,
    run,
    tokenizer,
)
from tests.pipeline.toy_tokenizer import write_toy_tokenizer

__all__ = ["rank_in_this_process", "tokenizer"]  # fixtures

TEST_ONLY = "rare"
KINDS: dict[str, dict[str, Any]] = {
    "choice": {"kind": "choice", "text_a": "a", "choices": ["ends"]},
    "multilabel": {"kind": "multilabel", "text_a": "a", "metric": "micro_f1"},
    "weighted": {"text_a": "a", "class_weights": {"0": 3.0}},
    "balanced": {"text_a": "a", "class_weights": "balanced"},
    "pairs": {"kind": "regress", "text_a": "a", "text_b": "b", "metric": "pearson"},
    "answers": {"kind": "span", "reader": "squad", "metric": "f1"},
    "spans": {"kind": "tag", "reader": "spans", "metric": "entity_f1"},
    "context": {"kind": "tag", "reader": "conll", "metric": "entity_f1", "context": "document"},
    "vectors": {"text_a": "a"},
}


def row(name: str, rng: np.random.Generator) -> str:
    words = [str(word) for word in rng.choice(WORDS, size=rng.integers(1, 8))]
    if name == "context":
        tagged = "".join(f"{word} {'B-X' if word < 'w3' else 'O'}\n" for word in words)
        return f"{'-DOCSTART- O' if rng.random() < 0.3 else ''}\n\n{tagged}"
    text = " ".join(words)
    if name == "answers":
        answer = {"text": words[-1], "answer_start": len(text) - len(words[-1])}
        asked = {"id": str(rng.integers(1 << 40)), "question": words[0], "answers": [answer]}
        return json.dumps({"paragraphs": [{"context": text, "qas": [asked]}]})
    if name == "spans":
        spans = [{"start": 0, "end": len(words[0]), "label": "X"}]
        return json.dumps({"text": text, "spans": spans})
    labels: dict[str, Any] = {
        "choice": int(rng.integers(2)),
        "multilabel": [word for word in WORDS[:3] if word in words],
    }
    ends = words if len(words) > 1 else ["w0", "w1"]
    return json.dumps(
        {"a": text, "b": words[0], "ends": ends, "label": labels.get(name, len(words) % 2)}
    )


def task_of(name: str, folder: Path) -> TaskConfig:
    """Write 60 examples and return their task."""
    rng = np.random.default_rng(0)
    rows = [row(name, rng) for _ in range(60)]
    file = {"context": "all.conll", "answers": "all.json"}.get(name, "all.jsonl")
    if name == "context":
        rows = ["-DOCSTART- O", *rows]
    if name == "answers":
        rows = [f'{{"data": [{", ".join(rows)}]}}']
    (folder / file).write_text("".join(f"{each}\n" for each in rows))
    task = TaskConfig(name="toy", data_dir=str(folder), train=file, dev=file, **KINDS[name])
    if name == "vectors":  # words that only the test file has
        rows = [json.dumps({"a": f"{TEST_ONLY} w{n}", "label": n % 2}) for n in range(20)]
        (folder / "test.jsonl").write_text("".join(f"{each}\n" for each in rows))
        task = replace(task, test="test.jsonl")
    task.check()
    return task


@pytest.mark.usefixtures("rank_in_this_process")
@pytest.mark.parametrize("name", list(KINDS))
def test_micro_batches_take_the_steps_of_the_plain_loop(
    name: str, tokenizer: Path, tmp_path: Path
) -> None:
    task = task_of(name, tmp_path)
    encoder, source = "random", tokenizer
    if name == "vectors":
        (source := tmp_path / "vectors").mkdir()
        values = np.random.default_rng(1).normal(size=(len(WORDS) + 1, 8)).astype(np.float32)
        VectorTable([*WORDS, TEST_ONLY], values).write(source)
        encoder = str(source)
    found = []
    for engine, size in (("plain", None), ("ranks", 3)):
        tuning = replace(TUNING, dropout=0.0, engine=engine, micro_batch_size=size, eval_every=1)
        config = Config(
            encoder=encoder, model=WITHOUT_DROPOUT, task=task, finetune=tuning, keep=False
        )
        found.append(run(config, source, tmp_path / engine))
    (plain, told), (ranks, also) = found
    assert losses(ranks) == pytest.approx(losses(plain), abs=2e-4)
    assert len(losses(plain)) == 2 * 4  # 60 examples in batches of 16
    assert told["cut_inputs"] == also["cut_inputs"]
    if task.test is None:  # then the development file is the test file
        for each in (told, also):
            assert each["score"] == pytest.approx(each["dev_scores"][each["best_epoch"] - 1])


def test_micro_batches_of_sentences_that_are_encoded_separately_are_refused(
    tokenizer: Path, tmp_path: Path
) -> None:
    """Their similarities are standardised over the batch, so its parts would differ from it."""
    tuning = replace(TUNING, pair_encoding="separate", micro_batch_size=3)
    config = Config(
        encoder="random", model=WITHOUT_DROPOUT, task=task_of("pairs", tmp_path), finetune=tuning
    )
    with pytest.raises(UsageError, match=r"finetune\.micro_batch_size=3: .* leave it out"):
        run(config, tokenizer, tmp_path / "ranks")
    config = replace(config, model=Config().model)
    with pytest.raises(UsageError, match=r"finetune\.micro_batch_size=3: .* leave it out"):
        config.check()  # before any work
    with pytest.raises(UsageError, match=r"finetune\.micro_batch_size=3: .* leave it out"):
        config.task.own_finetuning(tuning)  # as a member of a suite
    replace(config, task=task_of("weighted", tmp_path)).check()  # no pairs
    replace(config, finetune=replace(tuning, micro_batch_size=16)).check()  # whole batches


@pytest.mark.usefixtures("rank_in_this_process")
def test_both_loops_note_the_heads_rate_where_the_encoder_has_none(
    tokenizer: Path, tmp_path: Path
) -> None:
    task = task_of("weighted", tmp_path)
    found = []
    for engine in ("plain", "ranks"):
        tuning = replace(TUNING, lr=0.0, head_lr=0.1, warmup=0.0, epochs=1, engine=engine)
        config = Config(
            encoder="random", model=WITHOUT_DROPOUT, task=task, finetune=tuning, keep=False
        )
        lines, _ = run(config, tokenizer, tmp_path / engine)
        found.append([line["learning_rate"] for line in lines if "loss" in line])
    assert found[0] == pytest.approx(found[1]) and found[0][0] > 0


@pytest.mark.parametrize(
    ("name", "settings", "epochs", "is_chosen"),
    [
        ("answers", {"unanswerable": True}, 1, True),  # squad2: the threshold of "no answer"
        ("answers", {}, 1, False),
        ("multilabel", {"tune_threshold": True}, 1, True),
        ("multilabel", {}, 1, False),
        ("multilabel", {}, 2, True),
        ("multilabel", {"test": "all.jsonl"}, 2, False),
    ],
)
def test_a_score_says_if_the_epoch_or_the_threshold_was_chosen_on_its_set(
    name: str, settings: dict[str, Any], epochs: int, is_chosen: bool,
    tokenizer: Path, tmp_path: Path,
) -> None:  # fmt: skip
    """A threshold tuned on the scored set after a single epoch was not called a choice."""
    task = replace(task_of(name, tmp_path), **settings)
    config = Config(
        encoder="random", model=WITHOUT_DROPOUT, task=task, keep=False,
        finetune=replace(TUNING, epochs=epochs),
    )  # fmt: skip
    _, told = run(config, tokenizer, tmp_path / "out")
    assert told["chosen_on_scored"] is is_chosen
    assert chosen_on_scored(told) is is_chosen


@pytest.mark.usefixtures("rank_in_this_process")
def test_both_loops_leave_embeddings_that_no_training_example_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The optimizer of ranks decays whole tables, so tokens of the test set only would shrink."""
    monkeypatch.setattr("pipeline.tasks.lazy_rows.MANY", 30)  # the words, not the positions
    (tmp_path / "tokenizer").mkdir()
    source = write_toy_tokenizer(tmp_path / "tokenizer", [*WORDS, TEST_ONLY])
    kept: list[Finetuned] = []
    monkeypatch.setattr(tuning, "leave_model", lambda out, model, examples: kept.append(model))
    model, task = replace(WITHOUT_DROPOUT, max_positions=24), task_of("weighted", tmp_path)
    for engine in ("plain", "ranks"):
        own = replace(TUNING, dropout=0.0, engine=engine, weight_decay=1.0, eval_every=None)
        config = Config(encoder="random", model=model, task=task, finetune=own, keep=True)
        run(config, source, tmp_path / engine)
    before = random_encoder(model, source, TUNING.seed).lookup_tables()[0].weight
    plain, ranks = (each.model.encoder.lookup_tables()[0].weight for each in kept)
    unread = (plain == before).all(1)
    assert 0 < unread.sum() < len(before)
    assert torch.equal(ranks[unread], before[unread])
    torch.testing.assert_close(ranks, plain, atol=2e-3, rtol=0)
