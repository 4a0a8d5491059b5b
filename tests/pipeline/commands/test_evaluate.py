"""A model is scored as it was trained, and only on tasks of its form."""

import json
import shutil
from pathlib import Path

import pytest

from data_prep.errors import SesameError
from pipeline.commands.main import run
from pipeline.inference import models as inference
from tests.pipeline.inference.small_models import write_models

DOCUMENT = "-DOCSTART- O\n\n"
SENTENCES = "anna B-PER\nbo O\n\nbo B-PER\n"
SQUAD = {"id": "a", "question": "who", "answers": []}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    write_models(made)
    return made


def evaluate(model: Path, *words: str) -> int:
    return run(["evaluate", f"model={model}", *words])


def test_a_model_of_documents_is_scored_in_documents(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was scored on single sentences, which is another model's score."""
    shutil.copytree(models / "names", tmp_path / "paged")
    stated = json.loads((models / "names" / "finetuned.json").read_text())
    stated["task"]["context"] = "document"
    (tmp_path / "paged" / "finetuned.json").write_text(json.dumps(stated))
    (tmp_path / "test.conll").write_text(SENTENCES)
    words = ["task=conll2003", f"task.data_dir={tmp_path}", "task.test=test.conll"]
    assert evaluate(models / "names", *words) == 0
    assert evaluate(tmp_path / "paged", *words) == 1
    assert "has no -DOCSTART- lines" in capsys.readouterr().err
    (tmp_path / "test.conll").write_text(DOCUMENT + SENTENCES)
    assert evaluate(tmp_path / "paged", *words) == 0
    other = ["task=ud_pos", *words[1:]]
    assert evaluate(tmp_path / "paged", *other) == 2
    assert "trained with task.context=document" in capsys.readouterr().err


def test_a_model_that_always_answers_is_not_scored_on_questions_without_answers(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A traceback of the scores, which have no accepted answer to compare with."""
    content = {"data": [{"paragraphs": [{"context": "anna sang", "qas": [SQUAD]}]}]}
    (tmp_path / "dev-v2.0.json").write_text(json.dumps(content))
    assert evaluate(models / "quiz", "task=squad2", f"task.data_dir={tmp_path}") == 2
    assert "its questions may have no answer, but the model was" in capsys.readouterr().err


def test_pairs_and_single_texts_are_not_taken_for_each_other(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dev.tsv").write_text("sentence1\tsentence2\tlabel\ngood\tbad\tup\n")
    words = ["task=rte", f"task.data_dir={tmp_path}", "task.labels=[up,down]"]
    assert evaluate(models / "mood", *words) == 2
    assert "has pairs, but the model was trained with single texts" in capsys.readouterr().err
    (tmp_path / "dev.tsv").write_text("sentence\tscore\ngood\t3\nbad\t1\n")
    words = ["task=stsb", f"task.data_dir={tmp_path}", "task.text_a=sentence", "task.text_b=null"]
    assert evaluate(models / "alike", *words) == 2
    assert "has single texts, but the model was trained with pairs" in capsys.readouterr().err


def test_a_suite_is_answered_with_the_names_of_its_tasks(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate(models / "mood", "task=glue", f"task.data_dir={tmp_path}") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "task=glue: is a suite; evaluate one of its tasks: task=cola, task=sst2" in said


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_the_commands_use_the_best_device(
    command: str,
    models: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def asked(accelerator: str) -> None:
        raise SesameError(f"asked for {accelerator}")

    monkeypatch.setattr(inference, "choose_device", asked)
    (tmp_path / "a.txt").write_text("good\n")
    more = {
        "predict": [f"input={tmp_path / 'a.txt'}", f"output={tmp_path / 'out.jsonl'}"],
        "evaluate": ["task=sst2", f"task.data_dir={tmp_path}"],
    }
    assert run([command, f"model={models / 'mood'}", *more[command]]) == 1
    assert "asked for auto" in capsys.readouterr().err
