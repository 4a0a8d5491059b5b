"""Work units: a stage's work divided into folders that appear atomically.

A killed stage keeps its finished units and continues with the rest. The units depend on the stage's
inputs only. The number of workers, and whether they are local processes or the tasks of a SLURM
array, decides who makes which unit, not what is made.
"""

import ctypes
import multiprocessing
import os
import re
import shutil
import signal
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from data_prep.errors import SesameError, UsageError
from data_prep.files import naming, sync_directory
from data_prep.progress import Bar, progress

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
PR_SET_PDEATHSIG = 1  # prctl(2): the signal a process gets when its parent dies


@dataclass(frozen=True)
class WorkUnit:
    """One unit of work: `name` is the name of its folder, `what` the argument of `make`."""

    name: str
    what: Any


@dataclass(frozen=True)
class ArraySlice:
    """The work units of one of `count` launches, such as the tasks of a SLURM array.

    Only the first pass of a stage is divided: it reads the most, and its units are independent.
    """

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> "ArraySlice":
        """Parse `0/8` (the first of eight) to `7/8`; raises UsageError for anything else."""
        found = re.fullmatch(r"(\d+)/(\d+)", text)
        if found is None or int(found[1]) >= int(found[2]):
            raise UsageError(f"--share {text}: write the first of eight as 0/8, the last as 7/8")
        return cls(int(found[1]), int(found[2]))

    def of(self, pieces: Sequence[WorkUnit]) -> Sequence[WorkUnit]:
        """Return every `count`-th unit, so that the units of one slow file are spread evenly."""
        return pieces[self.number :: self.count]


def end_with_parent() -> None:
    """Ask Linux to kill this process when its parent ends, so that no orphan keeps writing.

    Does nothing on other systems.
    """
    with suppress(AttributeError):  # the C library has no prctl
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@contextmanager
def stop_signals_blocked() -> Iterator[None]:
    """Block stop signals in this thread; processes that are started in the block never see them.

    A signal that arrives meanwhile is delivered after the block. Ctrl-C and SLURM's warnings reach
    every process of a group; only the parent reacts, and ends its workers.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        # Python starts this helper before the first worker, and unblocks signals after that.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def kill_workers() -> None:
    """Kill the worker processes of this process; waiting for their work could take hours."""
    for process in multiprocessing.active_children():
        process.kill()


def run_unit(piece: WorkUnit, make: Callable[[Any, Path], None], root: Path) -> None:
    """Make one unit in a temporary folder and rename it to `root/<name>` when it is complete.

    `make(what, folder)` fills the folder. Does nothing if the unit exists. Safe if two processes
    make the same unit: the first to finish wins.
    """
    final = root / piece.name
    if final.exists():
        return
    # A unique name: an orphan process on a lost node may be making the same unit.
    partial = root / f".{piece.name}.{uuid.uuid4().hex[:8]}.tmp"
    partial.mkdir(parents=True)
    try:
        with naming(final):
            make(piece.what, partial)
        for path in partial.iterdir():
            with open(path, "rb") as stream:
                os.fsync(stream.fileno())
        try:
            os.rename(partial, final)
        except OSError:
            if not final.exists():  # if it exists, another process made the same unit meanwhile
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
    """Make every unit that does not exist yet and return the folders of all, in order.

    `make(what, folder)` must be picklable: it runs in `workers` processes, or in this process if
    there is one worker or one missing unit. `title` labels the progress bar. Raises SesameError if
    a worker process is killed.
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
    """Return the number of cores this process may use; SLURM and taskset may restrict it."""
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
    """Make units in worker processes; raises SesameError if one of them is killed."""
    left_before = set(root.glob(".*.tmp"))
    context = multiprocessing.get_context("spawn")
    with stop_signals_blocked():
        pool = ProcessPoolExecutor(workers, context, initializer=end_with_parent)
        futures = [pool.submit(run_unit, piece, make, root) for piece in pieces]
    with pool:
        try:
            for future in as_completed(futures):
                future.result()
                bar.advance()
        except BrokenProcessPool as error:
            # When one process dies the pool ends all others, so several units may be unfinished.
            begun = {
                path.name[1:].rsplit(".", 2)[0] for path in set(root.glob(".*.tmp")) - left_before
            }
            names = " or ".join(sorted(begun)) or "its first work unit"
            raise SesameError(
                f"{title}: a worker process was killed while it made {names}, probably because "
                "memory ran out; finished work units are kept: run again with fewer workers than "
                f"{workers} (corpus.workers, tokenizer.workers or examples.workers)"
            ) from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            kill_workers()
            raise


def worker_count(configured: int) -> int:
    """Return the number of worker processes: as configured, or one per usable core if 0."""
    return configured or usable_cores()
