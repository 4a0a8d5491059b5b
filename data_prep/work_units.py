"""Work cut into pieces: each piece is a folder that appears whole, so a killed stage keeps them.

The pieces follow from the stage's inputs alone; how many workers there are, and whether they are
a local pool or the tasks of a SLURM array, only decides who makes which.
"""

import ctypes
import multiprocessing
import os
import re
import shutil
import signal
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.errors import SesameError, UsageError
from data_prep.files import sync_directory
from data_prep.progress import Bar, progress

PR_SET_PDEATHSIG = 1  # prctl(2): the signal a process gets when its parent dies


@dataclass(frozen=True)
class WorkUnit:
    """One unit of work: `name` is its folder, `what` is whatever `make` needs to know."""

    name: str
    what: Any


@dataclass(frozen=True)
class ArraySlice:
    """The pieces that one of `count` launches makes, such as the tasks of a SLURM array.

    Shares are taken of a stage's first pass, which reads the most and needs no other piece.
    """

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> "ArraySlice":
        """The share written as `0/8` (the first of eight) to `7/8`."""
        found = re.fullmatch(r"(\d+)/(\d+)", text)
        if found is None or int(found[1]) >= int(found[2]):
            raise UsageError(f"--share {text}: write the first of eight as 0/8, the last as 7/8")
        return cls(int(found[1]), int(found[2]))

    def of(self, pieces: Sequence[WorkUnit]) -> Sequence[WorkUnit]:
        """Every `count`-th piece: neighbours, which may be of one slow file, fall to different."""
        return pieces[self.number :: self.count]


def end_with_parent() -> None:
    """Have this process killed when its parent ends, so that no orphan goes on writing."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def run_unit(piece: WorkUnit, make: Callable[[Any, Path], None], root: Path) -> None:
    """Make one piece under a temporary name and give it its own when it is complete."""
    final = root / piece.name
    if final.exists():
        return
    # A name of its own: the orphan of a lost node may be making the same piece.
    partial = root / f".{piece.name}.{uuid.uuid4().hex[:8]}.tmp"
    partial.mkdir(parents=True)
    try:
        make(piece.what, partial)
        for path in partial.iterdir():
            with open(path, "rb") as stream:
                os.fsync(stream.fileno())
        try:
            os.rename(partial, final)
        except OSError:
            if not final.exists():  # where it does, somebody made the same piece meanwhile
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    sync_directory(root)


def run_units(
    pieces: Sequence[WorkUnit],
    make: Callable[[Any, Path], None],
    root: Path,
    workers: int,
    title: str,
) -> list[Path]:
    """Make every piece that is not there yet; `make(what, folder)` must be picklable.

    Returns the pieces' folders in order. With one worker the work is done in this process.
    """
    root.mkdir(parents=True, exist_ok=True)
    missing = [piece for piece in pieces if not (root / piece.name).exists()]
    with progress(title, len(pieces), len(pieces) - len(missing)) as bar:
        if min(workers, len(missing)) <= 1:
            for piece in missing:
                run_unit(piece, make, root)
                bar.advance()
        else:
            _make_in_pool(missing, make, root, min(workers, len(missing)), title, bar)
    return [root / piece.name for piece in pieces]


def usable_cores() -> int:
    """The number of cores this process may run on, which SLURM and taskset may restrict."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _make_in_pool(
    pieces: Sequence[WorkUnit],
    make: Callable[[Any, Path], None],
    root: Path,
    workers: int,
    title: str,
    bar: Bar,
) -> None:
    """Make pieces in processes; a process that is killed ends the work with a SesameError."""
    left_before = set(root.glob(".*.tmp"))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, initializer=end_with_parent) as pool:
        futures = [pool.submit(run_unit, piece, make, root) for piece in pieces]
        try:
            for future in as_completed(futures):
                future.result()
                bar.advance()
        except BrokenProcessPool as error:
            # The pool ends all its processes with the one that died, so several pieces may be left.
            begun = {
                path.name[1:].rsplit(".", 2)[0] for path in set(root.glob(".*.tmp")) - left_before
            }
            names = " or ".join(sorted(begun)) or "its first piece"
            raise SesameError(
                f"{title}: a worker process was killed while it made {names}, probably for want "
                f"of memory; finished pieces are kept: run again with fewer workers than {workers} "
                "(corpus.workers, tokenizer.workers or examples.workers)"
            ) from error
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def worker_count(configured: int) -> int:
    """The number of worker processes: as configured, or one per usable core where that is 0."""
    return configured or usable_cores()
