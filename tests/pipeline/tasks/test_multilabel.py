"""Multi-label tasks: files, scores as scikit-learn's, thresholds, and a model that learns."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import accuracy_score, f1_score

from data_prep.errors import SesameError, UsageError
from pipeline.encoders import Encoder, random_encoder
from pipeline.models.bert.config import BertConfig
from pipeline.tasks.config import FinetuneConfig, TaskConfig
from pipeline.tasks.examples import Example
from pipeline.tasks.finetuned import build
from pipeline.tasks.finetuning import finetune
from pipeline.tasks.majority import answer_majority
from pipeline.tasks.metrics import score
from pipeline.tasks.multilabel_answers import MultilabelAnswers
from pipeline.tasks.splits import Splits, read_splits
from pipeline.tasks.submission import write_answers
from tests.pipeline.toy_tokenizer import write_toy_tokenizer

LABELS = ["a", "b", "c"]
MODEL = BertConfig(layers=1, hidden=16, heads=2, intermediate=32, max_positions=32, dropout=0.0)
TASK = TaskConfig(name="toy", kind="multilabel", metric="micro_f1")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    folder = write_toy_tokenizer(tmp_path_factory.mktemp("tokenizer"), [*"abcdefgh"])
    return random_encoder(MODEL, folder, seed=0)


def read(tmp_path: Path, name: str, text: str, **changed: Any) -> Splits:
    (tmp_path / name).write_text(text)
    given = {"train": name, "dev": name, **changed}
    return read_splits(replace(TASK, data_dir=str(tmp_path), **given), 0)


def test_labels_are_separated_by_a_character_or_listed(tmp_path: Path) -> None:
    table = "sentence\tlabel\na\tx|z\nb\t\nc\ty|x|y\n"
    splits = read(tmp_path, "a.tsv", table, label_separator="|")
    assert [example.gold for example in splits.train] == [("x", "z"), (), ("y", "x")]
    assert splits.labels == ["x", "y", "z"]
    rows = [{"sentence": "a", "label": ["x, y", "z"]}, {"sentence": "b", "label": []}]
    listed = read(tmp_path, "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert [example.gold for example in listed.train] == [("x, y", "z"), ()]
    with pytest.raises(SesameError, match=r"a\.tsv:4: .*label is not among the 2 of task"):
        read(tmp_path, "a.tsv", table, label_separator="|", labels=["x", "z"])


def test_a_file_without_any_label_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SesameError, match=r"task\.train=a\.tsv: no example has a label in column"):
        read(tmp_path, "a.tsv", "sentence\tlabel\na\t\nb\t\n")


def test_scores_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        gold, guess = rng.random((2, 30, 4)) < 0.3
        gold[:, 3] = guess[:, 3] = False  # a label that never occurs
        names = np.array([*"abcd"])
        sets = [[tuple(names[row]) for row in table] for table in (gold, guess)]
        ours = score("multilabel", *sets, [*"abcd"])
        kept = {"zero_division": 0}
        assert ours["micro_f1"] == pytest.approx(f1_score(gold, guess, average="micro", **kept))
        assert ours["macro_f1"] == pytest.approx(f1_score(gold, guess, average="macro", **kept))
        assert ours["subset_accuracy"] == pytest.approx(accuracy_score(gold, guess))


def examples(count: int, rng: np.random.Generator) -> list[Example]:
    """An example has a label if the letter is in its text."""
    made = []
    for _ in range(count):
        letters = [str(letter) for letter in rng.choice([*"abcdefgh"], size=5)]
        gold = tuple(label for label in LABELS if label in letters)
        made.append(Example((" ".join(letters),), gold, "", 0))
    return made


def test_the_loss_is_binary_cross_entropy(encoder: Encoder) -> None:
    own = examples(6, np.random.default_rng(0))
    answers = MultilabelAnswers(TASK, LABELS)
    model = build(encoder, answers, TASK, FinetuneConfig(max_seq_length=16)).model.eval()
    batch, gold_EC = answers.encode(encoder, own, 16).batch(np.arange(6))
    assert gold_EC.tolist() == [[float(label in e.gold) for label in LABELS] for e in own]
    logits_EC = model(batch)
    expected = F.binary_cross_entropy_with_logits(logits_EC, gold_EC)
    torch.testing.assert_close(model.head.loss(logits_EC, gold_EC, batch), expected)


def test_the_threshold_is_tuned_on_development_examples_if_asked(encoder: Encoder) -> None:
    own = [Example(("a",), ("a",), "", 0), Example(("b",), ("b",), "", 0)]
    outputs = np.array([[-1.0, -3.0, -3.0], [-3.0, -1.0, -3.0]], np.float32)  # sigmoid(-1) = 0.27
    plain = MultilabelAnswers(TASK, LABELS)
    data = plain.encode(encoder, own, 16)
    assert plain.tuned(outputs, data) is plain
    assert [guess.answer for guess in plain.decode(outputs, data)] == [(), ()]
    assert plain.decode(outputs, data)[0].confidence == pytest.approx(1 - 1 / (1 + np.e))
    asked = MultilabelAnswers(replace(TASK, tune_threshold=True), LABELS)
    tuned = asked.tuned(outputs, data)
    assert tuned.threshold == pytest.approx(0.25)  # of those that give all labels, nearest to 0.5
    assert [guess.answer for guess in tuned.decode(outputs, data)] == [("a",), ("b",)]
    assert MultilabelAnswers(TASK, **tuned.fitted()).threshold == tuned.threshold
    with pytest.raises(UsageError, match=r"task\.tune_threshold=true: only task\.kind=multilabel"):
        TaskConfig(tune_threshold=True).check()


def test_several_labels_can_be_learnt(encoder: Encoder, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    parts = [examples(count, rng) for count in (300, 40, 100)]
    config = FinetuneConfig(
        lr=1e-2, epochs=5, batch_size=16, max_seq_length=16, pooling="mean", accelerator="cpu",
        dropout=0.0,
    )  # fmt: skip
    splits = Splits(*parts, LABELS)
    outcome = finetune(encoder, splits, TASK, config)
    assert outcome.scores["micro_f1"] > 0.9
    assert answer_majority(splits, TASK).scores["micro_f1"] < 0.7
    write_answers(tmp_path, "test", "multilabel", parts[2], outcome.predictions)
    first = (tmp_path / "test.tsv").read_text().splitlines()[1]
    assert first == f"0\t{','.join(outcome.predictions[0].answer)}"
