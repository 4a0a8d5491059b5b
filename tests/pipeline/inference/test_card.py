"""The snippet of a model's card runs with the model."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from pipeline.tasks.model_card import model_card
from tests.pipeline.export.test_publish import FACTS
from tests.pipeline.inference.small_models import TASKS, write_models


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    write_models(made)
    return made


@pytest.mark.parametrize("text_b", [None, "other"])
@pytest.mark.parametrize("name", list(TASKS))
def test_the_snippet_of_the_card_gives_answers(
    name: str, text_b: str | None, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A card showed single texts for a classifier of pairs, and pairs for numbers of texts."""
    folder = tmp_path / "path" / "to" / "this" / "folder"
    shutil.copytree(models / name, folder)
    stated = json.loads((folder / "finetuned.json").read_text())
    stated["task"]["text_b"] = text_b
    (folder / "finetuned.json").write_text(json.dumps(stated))
    [snippet] = re.findall("```python\n(.*?)```", model_card(stated, FACTS, {}), re.DOTALL)
    *before, asked = snippet.strip().splitlines()
    known: dict[str, Any] = {}
    monkeypatch.chdir(tmp_path)
    exec("\n".join(before), known)
    assert len(eval(asked, known)) in (1, 2)
