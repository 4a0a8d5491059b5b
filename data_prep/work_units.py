"""Work units: a stage's work divided into folders that appear atomically.

A killed stage keeps its finished units and continues with the rest. The units depend on the stage's
inputs only. The number of workers, and whether they are local processes, the tasks of a SLURM array
or the tasks of a Ray cluster, decides who makes which unit, not what is made.
"""

import ctypes
import multiprocessing
import os
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
from typing import Any, Protocol

from data_prep.errors import SesameError
from data_prep.files import naming, sync_directory
from data_prep.progress import Bar

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
PR_SET_PDEATHSIG = 1  # prctl(2): the signal a process gets when its parent dies


@dataclass(frozen=True)
class WorkUnit:
    """One unit of work: `name` is the name of its folder, `what` the argument of `make`."""

    name: str
    what: Any


MakeUnit = Callable[[Any, Path], None]  # (what, folder): fills the folder; must be picklable


class Executor(Protocol):
    """Makes work units: in this process, in a pool of processes, or on other machines."""

    def make(
        self, units: Sequence[WorkUnit], make: MakeUnit, root: Path, title: str, bar: Bar
    ) -> None:
        """Make all units below `root`, each with `run_unit`; advance the bar after each.

        `title` names the pass in messages. Raises SesameError if a unit cannot be made.
        """


@dataclass(frozen=True)
class LocalPool:
    """Makes units in `workers` processes, or in this one if there is one worker or one unit."""

    workers: int

    @classmethod
    def of(cls, configured: int) -> "LocalPool":
        """Return a pool of as many workers as configured, or one per usable core if 0."""
        return cls(configured or usable_cores())

    def make(
        self, units: Sequence[WorkUnit], make: MakeUnit, root: Path, title: str, bar: Bar
    ) -> None:
        """See `Executor.make`. Raises SesameError if a worker process is killed."""
        workers = min(self.workers, len(units))
        if workers > 1:
            _make_in_pool(units, make, root, workers, title, bar)
            return
        for unit in units:
            run_unit(unit, make, root)
            bar.advance()


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


def run_unit(piece: WorkUnit, make: MakeUnit, root: Path) -> None:
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


def usable_cores() -> int:
    """Return the number of cores this process may use; SLURM and taskset may restrict it."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _make_in_pool(
    pieces: Sequence[WorkUnit],
    make: MakeUnit,
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
