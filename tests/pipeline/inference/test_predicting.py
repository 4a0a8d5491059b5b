"""Batches are bounded, and standard input is never continued with other lines."""

import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from data_prep.errors import UsageError
from pipeline.inference import predicting
from pipeline.inference.lines import Line
from pipeline.inference.models import FinetunedModel, Item, read_model
from pipeline.inference.predicting import predict_file
from pipeline.tasks.examples import Example
from pipeline.tasks.finetuned import build, load_finetuned
from tests.pipeline.inference.small_models import write_models


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    write_models(made)
    return made


@pytest.fixture(scope="module")
def mood(models: Path) -> FinetunedModel:
    return read_model(models / "mood")


LONG = "good film " * 30
ITEMS: dict[str, list[Item]] = {
    "mood": [LONG, "good"],
    "alike": [(LONG, LONG), ("good", "bad")],
    "ends": [(LONG, ["bad", "film"]), ("good", ["bad", "film", "bo"])],
    "quiz": [(LONG, LONG), ("good", LONG)],
    "names": [LONG, "good"],
}


@pytest.mark.parametrize("name", list(ITEMS))
def test_an_item_that_was_cut_counts_once(name: str, models: Path) -> None:
    """A long context was counted with each of its choices. Tags are found in all of a text, and a
    passage is read in windows; but a question is cut."""
    [answered] = read_model(models / name).answers([ITEMS[name]])
    assert answered.cut == (0 if name == "names" else 1)


def test_a_pair_in_two_parts_counts_once(models: Path) -> None:
    finetuned = load_finetuned(models / "alike")
    separate = replace(finetuned.config, pair_encoding="separate", pooling="mean")
    made = build(finetuned.model.encoder, finetuned.answers, finetuned.task, separate)
    [answered] = FinetunedModel(made, models / "alike").answers([ITEMS["alike"]])
    assert answered.cut == 1


def test_a_batch_of_documents_is_bounded_by_its_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicting, "BATCH_CHARACTERS", 10)
    items: list[Item] = ["x" * 30, "xxxx", ("xxx", "xxx"), ["xx", "xx"], ("x", ["xxx", "xxx"])]
    items.append(Example(("xxxx", "xxxx"), None, "", 0))
    lines = iter([Line(number, item) for number, item in enumerate(items)])
    batches = []
    while batch := [line.number for line in predicting._next_batch(lines)]:
        batches.append(batch)
    assert batches == [[0], [1, 2], [3, 4], [5]]


def test_another_standard_input_does_not_go_on_with_an_interrupted_one(
    mood: FinetunedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(io.BytesIO):
        def __next__(self) -> bytes:
            raise KeyboardInterrupt

    output = tmp_path / "out.jsonl"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Broken()))
    with pytest.raises(KeyboardInterrupt):
        predict_file(mood, "-", output)
    (tmp_path / "out.jsonl.part").write_bytes(b'{"line": 1, "label": "up"}\n')
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"bad\nfilm\n")))
    with pytest.raises(UsageError, match="belongs to another model or input; remove it"):
        predict_file(mood, "-", output)
    (tmp_path / "out.jsonl.part").unlink()
    predict_file(mood, "-", output)
    assert [json.loads(line)["line"] for line in output.read_text().splitlines()] == [1, 2]
