"""What is no item, and a folder that is no complete model, is refused in one sentence."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from data_prep.errors import SesameError, UsageError
from pipeline.inference.models import FinetunedModel, read_model
from tests.pipeline.inference.small_models import TASKS, write_models


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    write_models(made)
    return made


@pytest.fixture(scope="module")
def models(folder: Path) -> dict[str, FinetunedModel]:
    return {name: read_model(folder / name) for name in TASKS}


def test_one_text_is_no_list_of_texts(models: dict[str, FinetunedModel]) -> None:
    with pytest.raises(UsageError, match=r"give a list of items; for one text, \[text\]"):
        models["mood"].predict("good film")


HALF = "bo \ud83d"


@pytest.mark.parametrize(
    ("name", "item"),
    [
        ("mood", HALF), ("names", HALF), ("names", ["anna", HALF]), ("quiz", ("who", HALF)),
        ("ends", ("bo", ["good", HALF])),
    ],
)  # fmt: skip
def test_half_a_character_is_refused(
    name: str, item: Any, models: dict[str, FinetunedModel]
) -> None:
    with pytest.raises(UsageError, match="half a character"):
        models[name].predict([item])


@pytest.mark.parametrize(
    ("name", "item", "form"),
    [
        ("names", ["anna", 3], "a text or a list of words, not a list"),
        ("quiz", (1, "bo"), "a pair"),
        ("ends", ("bo", ["good", 3]), "a context and its choices"),
        ("ends", (None, ["good"]), "a context and its choices"),
    ],
)
def test_what_is_no_text_is_refused(
    name: str, item: Any, form: str, models: dict[str, FinetunedModel]
) -> None:
    with pytest.raises(UsageError, match=f"an item must be {form}"):
        models[name].predict([item])


MISSING = object()


@pytest.mark.parametrize(
    ("name", "place", "value", "says"),
    [
        ("mood", ["format"], 1, "format 1, but this version of Sesame reads 2; use the version"),
        ("mood", ["task"], [], "task is missing or no object"),
        ("mood", ["answers"], None, "answers is missing or no object"),
        ("mood", ["finetune", "head"], MISSING, "head is missing"),
        ("mood", ["form"], MISSING, "form is missing"),
        ("mood", ["task", "kind"], "foo", r"finetuned\.json: task\.kind=foo: must be one of"),
        ("mood", ["answers", "labels"], MISSING, r"answers\.labels is missing"),
        ("mood", ["answers", "labels"], "ab", r"answers\.labels must be a list of different"),
        ("mood", ["answers", "labels"], ["a", "a"], r"answers\.labels must be a list of different"),
        ("mood", ["answers", "labels"], [1, 2], r"answers\.labels must be a list of different"),
        ("mood", ["answers", "weights"], "x", r"answers\.weights is no key of kind classify"),
        ("topics", ["answers", "threshold"], MISSING, r"answers\.threshold is missing"),
        ("topics", ["answers", "threshold"], "x", r"answers\.threshold must be a number"),
        ("quiz", ["answers", "threshold"], MISSING, r"answers\.threshold is missing"),
        ("alike", ["answers", "most"], MISSING, r"answers\.most is missing"),
    ],
)
def test_a_model_without_all_that_it_needs_is_refused(
    name: str, place: list[str], value: Any, says: str, folder: Path, tmp_path: Path
) -> None:
    """Above all a threshold: without it the model would answer by another one."""
    copy = tmp_path / "model"
    shutil.copytree(folder / name, copy)
    stated = json.loads((copy / "finetuned.json").read_text())
    inner = stated
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    if value is MISSING:
        del inner[place[-1]]
    (copy / "finetuned.json").write_text(json.dumps(stated))
    with pytest.raises(SesameError, match=says) as refused:
        read_model(copy)
    assert "finetuned.json: " in str(refused.value)
