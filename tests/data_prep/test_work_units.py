import os
import signal
from pathlib import Path

import pytest

from data_prep.errors import SesameError, UsageError
from data_prep.files import atomic_write, sha256
from data_prep.passes import ArraySlice, Passes
from data_prep.work_units import LocalPool, MakeUnit, WorkUnit, run_unit


def write_square(number: int, folder: Path) -> None:
    (folder / "square").write_text(str(number * number))


def write_or_fail(number: int, folder: Path) -> None:
    (folder / "square").write_text("half")
    if number == 2:
        raise RuntimeError("killed")
    write_square(number, folder)


def write_or_be_killed(number: int, folder: Path) -> None:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory runs out
    write_square(number, folder)


def run_units(make: MakeUnit, root: Path, workers: int) -> list[Path]:
    return Passes(root, LocalPool(workers)).run("squares", PIECES, make)


PIECES = [WorkUnit(f"{number:03d}", number) for number in range(5)]


@pytest.mark.parametrize("workers", [1, 3])
def test_pieces_come_back_in_order_whoever_made_them(tmp_path: Path, workers: int) -> None:
    folders = run_units(write_square, tmp_path, workers)
    assert [int((folder / "square").read_text()) for folder in folders] == [0, 1, 4, 9, 16]


def test_finished_pieces_are_kept_and_half_made_ones_made_anew(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        run_units(write_or_fail, tmp_path, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000", "001"]
    kept = (tmp_path / "000" / "square").stat().st_mtime_ns
    run_units(write_square, tmp_path, 1)
    assert (tmp_path / "000" / "square").stat().st_mtime_ns == kept
    assert (tmp_path / "002" / "square").read_text() == "4"


def test_a_killed_worker_is_told_with_its_piece_and_finished_ones_are_kept(tmp_path: Path) -> None:
    (tmp_path / ".999.0123abcd.tmp").mkdir()  # left by an earlier kill
    with pytest.raises(SesameError) as caught:
        run_units(write_or_be_killed, tmp_path, 2)
    said = str(caught.value)
    assert said.startswith("squares: a worker process was killed while it made 0")
    assert "003" in said and "999" not in said
    assert "memory" in said and "corpus.workers" in said and "\n" not in said
    for path in tmp_path.glob("[0-9]*"):
        assert int((path / "square").read_text()) == int(path.name) ** 2
    run_units(write_square, tmp_path, 2)


@pytest.mark.parametrize("count", [1, 2, 5, 9])
def test_shares_are_all_pieces_and_no_piece_twice(count: int) -> None:
    shared = [piece for number in range(count) for piece in ArraySlice(number, count).of(PIECES)]
    assert sorted(piece.name for piece in shared) == [piece.name for piece in PIECES]


@pytest.mark.parametrize("text", ["3", "8/8", "-1/8", "1/0", "a/b", ""])
def test_a_share_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="the first of eight as 0/8"):
        ArraySlice.parse(text)


def test_two_launches_may_make_the_same_piece(tmp_path: Path) -> None:
    def make_while_another_does(number: int, folder: Path) -> None:
        run_unit(PIECES[number], write_square, tmp_path)
        write_square(number, folder)

    run_unit(PIECES[3], make_while_another_does, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["003"]
    assert (tmp_path / "003" / "square").read_text() == "9"


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(RuntimeError), atomic_write(path) as stream:
        stream.write(b"half")
        raise RuntimeError("killed")
    assert list(tmp_path.iterdir()) == []
    with atomic_write(path) as stream:
        stream.write(b"whole")
    assert path.read_bytes() == b"whole"
    assert sha256(path) == "5d5766cf2d78701614200418ee1450690d9af12c84d52545e4802f001ad53099"
