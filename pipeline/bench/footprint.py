"""Count what work does to files and memory: opens, bytes, files made, peak memory, seconds.

Counts are those of this process, so the work must not start others. Linux only.
"""

import gc
import os
import re
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from data_prep.progress import Bar
from data_prep.work_units import MakeUnit, WorkUnit, run_unit
from pipeline.bench.usage import peak_bytes

PEAK_RESET = "5"  # proc(5): written to clear_refs, resets the peak of resident memory


@dataclass(frozen=True)
class Footprint:
    """What some work did to files, and what it took."""

    opens: int  # of files and folders below the watched folder
    read: int  # bytes, by read calls; pages of memory-mapped files are not counted
    written: int  # bytes
    files: int  # files and folders made below the watched folder, temporary ones too
    memory: int  # peak bytes
    seconds: float
    core_seconds: float  # CPU seconds of this process: valid on a busy machine too
    units: int = 0  # work units made

    def __sub__(self, part: "Footprint") -> "Footprint":
        """Return what is left without a part of the work; the memory is that of the whole."""
        left = {f.name: getattr(self, f.name) - getattr(part, f.name) for f in fields(self)}
        return Footprint(**{**left, "memory": self.memory, "units": self.units})

    def __add__(self, other: "Footprint") -> "Footprint":
        """Return the sum of two works one after the other; memory is the larger one."""
        both = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        return Footprint(**{**both, "memory": max(self.memory, other.memory)})


NOTHING = Footprint(0, 0, 0, 0, 0, 0.0, 0.0)


class _Watch:
    """Counts opens and new files below a folder.

    Python cannot remove an audit hook. There is one per process; it does nothing while no folder
    is watched.
    """

    def __init__(self) -> None:
        self.folder: str | None = None
        self.opens = self.files = 0
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.folder is None or event not in ("open", "os.mkdir"):
            return
        if not isinstance(arguments[0], str | os.PathLike):
            return  # an open descriptor
        path = os.fspath(arguments[0])
        if not isinstance(path, str) or not path.startswith(self.folder):
            return
        is_folder = event == "os.mkdir"
        self.opens += not is_folder
        makes = is_folder or bool(arguments[2] & os.O_CREAT)
        self.files += makes and not os.path.lexists(path)


_watches: list[_Watch] = []


def measure_footprint(work: Callable[[], object], folder: Path, traced: bool = False) -> Footprint:
    """Run work that uses files below `folder` and return what it did.

    traced: memory is the peak of what Python and NumPy allocate meanwhile, which is exact and
        slow; otherwise it is the peak of the process's resident memory.
    """
    if not _watches:
        _watches.append(_Watch())
    watch = _watches[0]
    before, opens, files = _bytes_moved(), watch.opens, watch.files
    with _peak(traced) as peak:
        started, used = time.perf_counter(), time.process_time()
        outer, watch.folder = watch.folder, watch.folder or str(folder)
        try:
            work()
        finally:
            watch.folder = outer
        seconds, core_seconds = time.perf_counter() - started, time.process_time() - used
    read, written = (now - then for now, then in zip(_bytes_moved(), before, strict=True))
    opens, files = watch.opens - opens, watch.files - files
    return Footprint(opens, read, written, files, peak[0], seconds, core_seconds)


@contextmanager
def _peak(traced: bool) -> Iterator[list[int]]:
    """Yield a list that holds the peak memory of the block after its end."""
    found = [0]
    if traced:
        was_tracing = tracemalloc.is_tracing()
        if not was_tracing:
            gc.freeze()  # makes later collections fast: they see new objects only
            tracemalloc.start()
        tracemalloc.reset_peak()
        base = tracemalloc.get_traced_memory()[0]
        yield found
        found[0] = tracemalloc.get_traced_memory()[1] - base
        if not was_tracing:
            tracemalloc.stop()
            gc.unfreeze()
        return
    Path("/proc/self/clear_refs").write_text(PEAK_RESET)
    yield found
    found[0] = peak_bytes()


def _bytes_moved() -> tuple[int, int]:
    """Return the bytes that this process has read and written so far, by system calls."""
    text = Path("/proc/self/io").read_text()
    read, written = (int(re.search(rf"{name}: (\d+)", text)[1]) for name in ("rchar", "wchar"))  # type: ignore[index]
    return read, written


class MeasuredUnits:
    """An executor that makes units in this process and measures each pass."""

    def __init__(self, traced: bool = False) -> None:
        self.passes: dict[str, Footprint] = {}
        self._traced = traced

    def make(
        self, units: Sequence[WorkUnit], make: MakeUnit, root: Path, title: str, bar: Bar
    ) -> None:
        """See `Executor.make`."""

        def work() -> None:
            for unit in units:
                run_unit(unit, make, root)
                bar.advance()
                if self._traced:
                    gc.collect()  # cycles of one unit are not memory of the next

        found = measure_footprint(work, root, self._traced)
        found = replace(found, units=len(units))
        self.passes[title] = self.passes.get(title, NOTHING) + found
