"""The peer of `sesame bench parity` computes what our model does, and trains."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from data_prep.errors import UsageError
from pipeline.bench import parity, predict, transformers_loop
from pipeline.bench.transformers_loop import IGNORED, TransformersLoop, _labels
from pipeline.bench.turns import Spent
from pipeline.config.schema import Config
from pipeline.models.bert.config import BertConfig
from pipeline.tasks import optimizer
from pipeline.tasks.config import FinetuneConfig, TaskConfig
from pipeline.tasks.examples import Example
from pipeline.tasks.finetuned import load_finetuned
from pipeline.tasks.model import head_outputs
from pipeline.tasks.splits import Splits

TINY = BertConfig(layers=2, hidden=16, heads=2, intermediate=32, max_positions=128)
SIZE = 4
AUTO = {"sentences": "SequenceClassification", "tags": "TokenClassification"}


def made(kind: str, folder: Path) -> list[Example]:
    """Write a model of the kind; return examples with the words that it knows."""
    items = predict._made_up(kind)[:40]
    labels = predict.LABELS[kind]
    predict._write_model(folder, TINY, predict.TASKS[kind], labels, items)
    rng = np.random.default_rng(0)
    if kind == "sentences":
        return [Example((str(item),), str(rng.choice(labels)), str(item), n)
                for n, item in enumerate(items)]  # fmt: skip
    return [Example(tuple(item), tuple(rng.choice(labels, len(item))), " ".join(item), n)
            for n, item in enumerate(items)]  # fmt: skip


@pytest.mark.parametrize("kind", list(AUTO))
def test_the_peer_has_our_answers_in_our_order(kind: str, tmp_path: Path) -> None:
    examples = made(kind, tmp_path)
    ours = load_finetuned(tmp_path)
    data = ours.answers.encode(ours.model.encoder, examples, 16)  # sentences in several windows
    assert (len(data.counts) > len(examples)) == (kind == "tags")
    model = getattr(transformers, f"AutoModelFor{AUTO[kind]}").from_pretrained(tmp_path)
    loop = TransformersLoop(model, FinetuneConfig(batch_size=SIZE), pad=0)
    np.testing.assert_allclose(loop.outputs(data), head_outputs(ours.model, data), atol=1e-5)


def test_the_first_token_of_each_word_has_the_label(tmp_path: Path) -> None:
    examples = made("tags", tmp_path)[:SIZE]
    ours = load_finetuned(tmp_path)
    data = ours.answers.encode(ours.model.encoder, examples, 128)
    loop = TransformersLoop(None, FinetuneConfig(batch_size=SIZE), pad=0)
    [batch] = loop._batches(data, np.arange(SIZE))
    labels_EL = _labels(batch)
    for row, (example, tokens) in enumerate(zip(examples, batch.inputs["input_ids"], strict=True)):
        words = len(example.texts)  # each is one token, after [CLS]
        expected = [data.gold[n] for n in data.places(np.array([row]))]
        assert labels_EL[row, 1 : 1 + words].tolist() == expected
        assert (labels_EL[row, 1 + words :] == IGNORED).all()
        assert tokens[1 + words + 1 :].eq(0).all()


def test_biases_and_norms_decay_on_neither_side(tmp_path: Path) -> None:
    """The peer's decayed, which made two differences of one benchmark."""
    made("sentences", tmp_path)
    ours = load_finetuned(tmp_path).model
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    theirs = transformers_loop.parameter_groups(model, 0.1)
    assert sum(len(group["params"]) for group in theirs) == len(list(model.parameters()))
    for group in theirs:
        for value in group["params"]:
            assert group["weight_decay"] == (0.1 if value.ndim > 1 else 0.0)
    config = FinetuneConfig(weight_decay=0.1)
    own = optimizer.parameter_groups(ours.encoder, ours.head, config)
    counts = [
        sum(value.numel() for group in own for value in group.values if group.decay == decay)
        for decay in (0.1, 0.0)
    ]
    assert counts == [sum(v.numel() for v in group["params"]) for group in theirs]


def test_the_peer_steps_with_these_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = made("sentences", tmp_path)[:SIZE]
    ours = load_finetuned(tmp_path)
    data = ours.answers.encode(ours.model.encoder, examples, 16)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    decays: list[list[float]] = []

    def noted(groups: list[dict[str, Any]], **settings: Any) -> torch.optim.AdamW:
        made = AdamW(groups, **settings)
        decays.append([group["weight_decay"] for group in made.param_groups])
        return made

    AdamW = torch.optim.AdamW
    monkeypatch.setattr(transformers_loop.torch.optim, "AdamW", noted)
    config = FinetuneConfig(batch_size=SIZE, epochs=1, weight_decay=0.1)
    assert list(TransformersLoop(model, config, pad=0).epochs(data)) == [1]
    assert decays == [[0.1, 0.0]]


@pytest.mark.parametrize("kind", list(AUTO))
def test_both_sides_learn_the_same_examples(kind: str, tmp_path: Path) -> None:
    examples = made(kind, tmp_path)[:SIZE]
    task = replace(predict.TASKS[kind], metric="accuracy")
    splits = Splits(examples, examples, examples, predict.LABELS[kind])
    config = FinetuneConfig(lr=1e-2, epochs=60, batch_size=SIZE, accelerator="cpu", dropout=0.0)
    job = parity.Job(str(tmp_path), task, splits, config)
    for side in (parity._Ours(job), parity._Peer(job)):
        found = side()
        assert found.score >= 0.9, "sixty steps on four examples learn them"
        assert found.peak > 1e8


def test_the_line_of_scores_names_the_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """On dev the epoch was chosen on the scored set, so that is no test score."""
    done = (Spent(1.0, 1.0, 0.0), parity.SideResult(0.5, 1_000_000))
    monkeypatch.setattr(parity, "prepare_encoder", lambda *_: {"encoder": "minilm"})
    monkeypatch.setattr(parity, "read_splits", lambda *_: Splits([], [], [], []))
    monkeypatch.setattr(parity, "race", lambda *_: [done, done])
    config = Config(encoder="minilm", finetune=FinetuneConfig())
    for files, split in (({"dev": "dev.tsv"}, "dev"), ({"test": "test.tsv"}, "test")):
        task = TaskConfig(name="sst2", train="a.tsv", metric="accuracy", **files)
        first = parity.measure(replace(config, task=task))[0]
        assert first.name == f"accuracy on {split}, 3 seeds"


@pytest.mark.parametrize(
    ("task", "settings", "word"),
    [
        (TaskConfig(name="q", kind="span", train="a.json"), FinetuneConfig(), "task=q"),
        (TaskConfig(name="c", train="a.tsv"), FinetuneConfig(head="bilstm"), "leave"),
        (TaskConfig(name="c", train="a.tsv"), FinetuneConfig(pooling="mean"), "leave"),
        (TaskConfig(name="c", train="a.tsv", class_weights="balanced"), FinetuneConfig(), "weighs"),
    ],
)
def test_settings_that_the_peer_lacks_are_refused(
    task: TaskConfig, settings: FinetuneConfig, word: str
) -> None:
    with pytest.raises(UsageError, match=word):
        parity.measure(Config(encoder="minilm", task=task, finetune=settings))
