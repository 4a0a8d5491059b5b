"""Batches are bounded, and standard input is never continued with other lines."""

import io
import json
import sys
from pathlib import Path

import pytest

from data_prep.errors import UsageError
from pipeline.inference import predicting
from pipeline.inference.lines import Line
from pipeline.inference.models import FinetunedModel, Item, read_model
from pipeline.inference.predicting import predict_file
from pipeline.tasks.examples import Example
from tests.pipeline.inference.small_models import write_models


@pytest.fixture(scope="module")
def mood(tmp_path_factory: pytest.TempPathFactory) -> FinetunedModel:
    made = tmp_path_factory.mktemp("models")
    write_models(made)
    return read_model(made / "mood")


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
