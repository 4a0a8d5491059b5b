import shutil
import threading
from collections import namedtuple
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from pipeline.training import scratch
from pipeline.training.scratch import with_local_examples


@dataclass(frozen=True)
class Rows:
    """The part of a job that is used here."""

    examples: list[str]
    token: str = "t"
    said: list[str] = field(default_factory=list)

    def local(self, rank: int = 0) -> list[str]:
        return with_local_examples(cast(Any, self), rank, self.said.append).examples


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rows:
    folder = tmp_path / "store" / "examples" / "0123"
    folder.mkdir(parents=True)
    (folder / "train-0.tar").write_bytes(b"rows")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("SESAME_SCRATCH", "$TMPDIR")
    return Rows([str(folder)] * 2)  # two phases may read the same rows


def test_rows_are_copied_once_and_keep_their_name(rows: Rows, tmp_path: Path) -> None:
    made = rows.local()
    assert made == [str(tmp_path / "tmp" / "sesame-rows" / "0123")] * 2
    assert (Path(made[0]) / "train-0.tar").read_bytes() == b"rows"
    shutil.rmtree(rows.examples[0])
    assert Rows(rows.examples, token="later").local() == made  # nothing is read a second time


def test_other_ranks_of_the_node_wait_for_the_copy(rows: Rows) -> None:
    found: list[list[str]] = []
    other = threading.Thread(target=lambda: found.append(rows.local(1)))
    other.start()
    made = rows.local()
    other.join()
    assert found == [made]


def test_two_jobs_on_one_node_share_a_copy(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    copytree = shutil.copytree

    def slower(source: Path, target: Path) -> None:
        copytree(source, target)
        if ".t" in target.name:  # the other job copies meanwhile
            monkeypatch.setattr(scratch.shutil, "copytree", copytree)
            Rows(rows.examples, token="other").local()

    monkeypatch.setattr(scratch.shutil, "copytree", slower)
    made = Path(rows.local()[0])
    assert [path.name for path in made.parent.iterdir() if path.is_dir()] == ["0123"]


def test_rows_that_do_not_fit_are_read_where_they_are(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(scratch.shutil, "disk_usage", lambda path: usage(3))
    assert rows.local() == rows.examples
    assert "3 bytes free, but the rows need 4" in rows.said[0]


def test_without_a_scratch_folder_nothing_is_copied(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SESAME_SCRATCH")
    assert rows.local() == rows.examples
