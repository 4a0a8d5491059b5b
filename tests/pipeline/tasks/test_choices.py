"""Multiple choice: files of every form, losses and answers over an example's own choices."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from data_prep.errors import SesameError, UsageError
from pipeline.config.compose import compose_config
from pipeline.encoders import Encoder, random_encoder
from pipeline.models.bert.config import BertConfig
from pipeline.tasks.choice_answers import ChoiceAnswers, ChoicePrediction
from pipeline.tasks.config import FinetuneConfig, TaskConfig
from pipeline.tasks.examples import Example
from pipeline.tasks.finetuned import build
from pipeline.tasks.finetuning import finetune
from pipeline.tasks.majority import answer_majority
from pipeline.tasks.splits import Splits, read_splits
from tests.pipeline.toy_tokenizer import write_toy_tokenizer

WORDS = [*"abcdefgh"]
MODEL = BertConfig(layers=1, hidden=16, heads=2, intermediate=32, max_positions=32, dropout=0.0)
TASK = TaskConfig(name="toy", kind="choice", choices=["one", "other"])


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    folder = write_toy_tokenizer(tmp_path_factory.mktemp("tokenizer"), WORDS)
    return random_encoder(MODEL, folder, seed=0)


def task_named(name: str, folder: Path) -> TaskConfig:
    return compose_config([f"task={name}", f"task.data_dir={folder}"]).task


SWAG = """\
,video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label
0,v,1,"A b. He",A b.,He,gold,"runs, fast.",sits.,eats.,flies.,{label}
"""
COPA = {"premise": "A b.", "choice1": "It ran.", "choice2": "It sat.", "question": "cause"}
QUESTION = {
    "question": {
        "stem": "A b?",
        "choices": [{"label": label, "text": label.lower()} for label in "ABCDE"],
    }
}


def test_the_public_files_are_read(tmp_path: Path) -> None:
    for name in ("train", "val"):
        (tmp_path / f"{name}.csv").write_text(SWAG.format(label=2))
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({**COPA, "label": 1, "idx": 7}) + "\n")
    (tmp_path / "test.csv").write_text(SWAG.format(label="").replace(",label", "").rstrip(",\n"))
    for name in ("train", "dev"):
        line = json.dumps({"answerKey": "D", "id": "x", **QUESTION})
        (tmp_path / f"{name}_rand_split.jsonl").write_text(line + "\n")
    blind = tmp_path / "test_rand_split_no_answers.jsonl"
    blind.write_text(json.dumps(QUESTION) + "\n")
    for name in ("train", "dev", "test"):
        (tmp_path / f"codah.{name}.tsv").write_text(f"o\tA b. It\t{name}.\tsits.\teats.\tis.\t3\n")

    swag = read_splits(task_named("swag", tmp_path), 0)
    assert swag.train[0].texts == ("A b.", "He runs, fast.", "He sits.", "He eats.", "He flies.")
    assert swag.train[0].gold == "2"
    assert [len(e.texts) for e in swag.unlabelled["swag"]] == [5]
    copa = read_splits(task_named("copa", tmp_path), 0)
    assert copa.dev[0].texts == ("A b.", "cause It ran.", "cause It sat.")
    assert copa.dev[0].gold == "1"
    commonsense = read_splits(task_named("commonsense_qa", tmp_path), 0)
    assert commonsense.train[0].texts == ("A b?", *"abcde") and commonsense.train[0].gold == "D"
    assert commonsense.unlabelled["commonsense_qa"][0].gold is None
    codah = read_splits(task_named("codah", tmp_path), 0)
    assert [part[0].texts[1] for part in (codah.train, codah.dev, codah.test)] == [
        "train.", "dev.", "test.",
    ]  # fmt: skip


def read(tmp_path: Path, rows: list[dict[str, Any]], **changed: Any) -> Splits:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = {"train": "a.jsonl", "dev": "a.jsonl", "text_a": "begin", **changed}
    return read_splits(replace(TASK, data_dir=str(tmp_path), **given), 0)


def test_examples_may_have_any_number_of_choices(tmp_path: Path) -> None:
    rows = [{"begin": "a", "ends": ["b", "c", "d"][:n], "label": n - 1} for n in (2, 3)]
    assert [e.texts for e in read(tmp_path, rows, choices=["ends"]).train] == [
        ("a", "b", "c"), ("a", "b", "c", "d"),
    ]  # fmt: skip
    empty = [{"begin": "a", "one": "b", "other": "c", "third": "", "label": 0}]
    assert read(tmp_path, empty, choices=["one", "other", "third"]).train[0].texts == (
        "a", "b", "c",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"begin": "", "one": "b", "other": "c", "label": 0}, "column begin is empty"),
        ({"begin": "a", "one": "b", "other": "", "label": 0}, "fewer than 2 choices"),
        ({"begin": "a", "one": "", "other": "c", "label": 0}, "an empty one"),
        ({"begin": "a", "one": "b", "other": "c", "label": 2}, "names none of the 2 choices"),
        ({"begin": "a", "one": "b", "other": {"text": "c"}, "label": 0}, "a list or an object"),
        ({"begin": "a", "one": "b", "other": "c", "label": "B"}, "names none of the 2 choices"),
        ({"begin": "a", "one": "b", "other": "c", "label": "1" * 5000}, "names none of the 2"),
        ({"begin": "a", "one": "b", "label": 0}, "no column other; .*task\\.choices"),
    ],
)
def test_faults_are_named_by_line(row: dict[str, Any], reason: str, tmp_path: Path) -> None:
    good = {"begin": "a", "one": "b", "other": "c", "label": 0}
    with pytest.raises(SesameError, match=rf"a\.jsonl:2: .*{reason}"):
        read(tmp_path, [good, row])


def test_a_number_of_a_choice_has_one_spelling(tmp_path: Path) -> None:
    row = {"begin": "a", "one": "b", "other": "c"}
    found = read(tmp_path, [row | {"label": "01"}, row | {"label": 1}, row | {"label": "٠"}])
    assert [example.gold for example in found.train] == ["1", "1", "0"]


def test_the_beginning_of_the_choices_is_a_text(tmp_path: Path) -> None:
    row = {"begin": "a", "then": ["b"], "one": "c", "other": "d", "label": 0}
    with pytest.raises(SesameError, match=r"a\.jsonl:1: has a list or an object where a text"):
        read(tmp_path, [row], text_b="then")


@pytest.mark.parametrize("fault", [{}, {"question": "a"}, {"question": {"choices": ["b", "c"]}}])
def test_a_row_that_is_not_nested_is_named(fault: dict[str, Any], tmp_path: Path) -> None:
    nested = {"reader": "commonsense_qa", "text_a": "question", "choices": ["choices"]}
    rows = [{"answerKey": "A", **QUESTION}, {"answerKey": "A", **fault}]
    with pytest.raises(SesameError, match=r"a\.jsonl:2: has (no object|a choice)"):
        read(tmp_path, rows, **nested, label="answerKey")
    kept = read(tmp_path, rows, **nested, label="answerKey", faulty="drop")
    assert (len(kept.train), kept.repairs["dropped"], kept.train[0].gold) == (1, 2, "0")


def test_choices_belong_to_multiple_choice() -> None:
    with pytest.raises(UsageError, match=r"task\.choices=\[\]: task\.kind=choice needs columns"):
        replace(TASK, choices=[]).check()
    with pytest.raises(UsageError, match=r"task\.choices=\[one,other\]"):
        replace(TASK, kind="classify").check()


def examples(count: int, rng: np.random.Generator) -> list[Example]:
    """The right choice repeats the context; there are two to four choices."""
    made = []
    for _ in range(count):
        letters = [str(letter) for letter in rng.permutation(WORDS)[: rng.integers(2, 5)]]
        right = int(rng.integers(len(letters)))
        made.append(Example((letters[right], *letters), str(right), "", 0))
    return made


def test_the_loss_is_over_the_choices_of_each_example(encoder: Encoder) -> None:
    own = examples(9, np.random.default_rng(0))
    answers = ChoiceAnswers([])
    model = build(encoder, answers, TASK, FinetuneConfig(max_seq_length=16)).model.eval()
    data = answers.encode(encoder, own, 16)
    picked = np.array([4, 0, 7, 2])
    batch, gold_U2 = data.batch(picked)
    logits_U1 = model(batch)
    sizes = [len(own[place].texts) - 1 for place in picked]
    expected = [
        F.cross_entropy(part[None, :, 0], torch.tensor([int(str(own[place].gold))]))
        for part, place in zip(logits_U1.split(sizes), picked, strict=True)
    ]
    loss = model.head.loss(logits_U1, gold_U2, batch)
    torch.testing.assert_close(loss, torch.stack(expected).mean())
    parts = []  # micro-batches of whole examples
    for place in picked:
        batch, gold_U2 = data.batch(np.array([place]))
        parts.append(model.head.loss_sums(model(batch), gold_U2, batch))
    total, weight = (sum(column) for column in zip(*parts, strict=True))
    torch.testing.assert_close(loss, total / weight)


def test_answers_are_among_the_examples_own_choices(encoder: Encoder) -> None:
    own = [Example(("a", *"bc"), None, "", 0), Example(("a", *"bcd"), None, "", 0)]
    answers = ChoiceAnswers(["A", "B", "C"])
    outputs = np.array([[1.0], [3.0], [0.0], [0.0], [5.0]], np.float32)
    two, three = answers.decode(outputs, answers.encode(encoder, own, 16))
    assert isinstance(two, ChoicePrediction) and isinstance(three, ChoicePrediction)
    assert (two.answer, three.answer) == ("B", "C") and (two.number, three.number) == (1, 2)
    np.testing.assert_allclose(two.shares, torch.tensor([1.0, 3.0]).softmax(0).numpy(), rtol=1e-6)
    assert two.confidence == two.shares[1] and sum(three.shares) == pytest.approx(1)


def test_multiple_choice_can_be_learnt(encoder: Encoder) -> None:
    rng = np.random.default_rng(0)
    parts = [examples(count, rng) for count in (300, 40, 100)]
    config = FinetuneConfig(
        lr=1e-2, epochs=3, batch_size=16, max_seq_length=16, pair_encoding="separate",
        accelerator="cpu", dropout=0.0,
    )  # fmt: skip
    splits = Splits(*parts, [])
    outcome = finetune(encoder, splits, TASK, config)
    assert outcome.scores == {"accuracy": pytest.approx(1.0, abs=0.1)}
    assert outcome.steps == 3 * 19  # batches are counted in examples
    assert answer_majority(splits, TASK).scores["accuracy"] < 0.5
