"""Words in Context: the word is marked in both sentences; labels stand in a file of their own."""

from pathlib import Path

import pytest

from data_prep.errors import SesameError
from pipeline.config.compose import compose_config
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.splits import read_splits, task_files

ROW = "board\tN\t2-1\tRoom and board .\tHe nailed boards across the windows .\n"


@pytest.fixture
def task(tmp_path: Path) -> TaskConfig:
    for name in ("train", "dev", "test"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.data.txt").write_text(ROW + ROW.replace("2-1", "0-0"))
        (tmp_path / name / f"{name}.gold.txt").write_text("F\nT\n")
    return compose_config(["task=wic", f"task.data_dir={tmp_path}"]).task


def test_the_word_is_marked_in_both_sentences(task: TaskConfig) -> None:
    splits = read_splits(task, 0)
    first, second = splits.train
    assert first.texts == ('Room and " board " .', 'He " nailed " boards across the windows .')
    assert (first.gold, second.gold) == ("F", "T")
    assert splits.labels == ["F", "T"]


def test_the_labels_belong_to_the_tasks_files(task: TaskConfig) -> None:
    names = [path.name for _, path in task_files(task)]
    assert sorted(names) == sorted(
        f"{name}.{kind}.txt" for name in ("train", "dev", "test") for kind in ("data", "gold")
    )


@pytest.mark.parametrize(
    ("row", "gold", "message"),
    [
        ("a\tN\t0-0\ta\n", "T\n", r"data\.txt:1: needs word, part of speech"),
        ("a\tN\t0-9\ta\ta b\n", "T\n", r"data\.txt:1: needs word"),
        ("a\tN\tx\ta\ta b\n", "T\n", r"data\.txt:1: needs word"),
        (ROW, "T\nF\n", r"data\.txt: has 1 lines, but train\.gold\.txt has 2 labels"),
        (ROW, "yes\n", r"gold\.txt:1: a label must be T or F"),
        (ROW, None, r"data\.txt: no file of labels"),
    ],
)
def test_faults_are_named(task: TaskConfig, row: str, gold: str | None, message: str) -> None:
    folder = Path(str(task.data_dir)) / "train"
    (folder / "train.data.txt").write_text(row)
    (folder / "train.gold.txt").unlink()
    if gold is not None:
        (folder / "train.gold.txt").write_text(gold)
    with pytest.raises(SesameError, match=message):
        read_splits(task, 0)
