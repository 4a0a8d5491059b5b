"""The passes of a data stage: each divides its work into units, and one merge follows.

    plan    the stage lists the units of a pass; they depend on its inputs only
    units   an executor makes the missing ones (data_prep.work_units), or one slice of them
    merge   one process adds up what the units counted, before the next pass is planned

A slice makes its share of one pass only. The arrays of a cluster run one pass after another, so a
slice finds all units of the passes before its own.
"""

import os
import re
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from data_prep.errors import SesameError, UsageError
from data_prep.progress import progress
from data_prep.work_units import Executor, LocalPool, MakeUnit, WorkUnit, run_unit

UNITS = ".pieces"  # subfolder of an unfinished output with its finished work units
REMOVED = ".removed"  # its name while it is removed


class SliceDone(Exception):
    """Raised when a slice has made its units: the rest of the stage is not its work."""


@dataclass(frozen=True)
class ArraySlice:
    """The units of one of `count` launches, such as the tasks of a SLURM array, in one pass."""

    number: int
    count: int
    of_pass: str = ""  # name of the pass; empty for the first

    @classmethod
    def parse(cls, text: str) -> "ArraySlice":
        """Parse `0/8` (the first of eight) to `7/8`, or with a pass `0/8:write`.

        Raises UsageError for anything else.
        """
        found = re.fullmatch(r"(\d+)/(\d+)(?::(\w+))?", text)
        if found is None or int(found[1]) >= int(found[2]):
            raise UsageError(
                f"--share {text}: write the first of eight as 0/8, the last as 7/8; a pass other "
                "than the first follows a colon, as in 0/8:write"
            )
        return cls(int(found[1]), int(found[2]), found[3] or "")

    def of(self, pieces: Sequence[WorkUnit]) -> Sequence[WorkUnit]:
        """Return every `count`-th unit, so that the units of one slow file are spread evenly."""
        return pieces[self.number :: self.count]


@dataclass
class Passes:
    """Runs the passes of one stage in order; units are stored below `root`.

    share: make only this slice of one pass and then raise SliceDone.
    divided: the passes that slices divide. Every slice that comes to another pass makes all of its
        missing units: it has few. None: all passes are divided.
    """

    root: Path
    executor: Executor
    share: ArraySlice | None = None
    divided: Collection[str] | None = None
    _is_over: bool = field(default=False, init=False)  # the slice has made its units

    @classmethod
    def below(
        cls,
        out: Path,
        executor: Executor | None = None,
        share: ArraySlice | None = None,
        divided: Collection[str] | None = None,
    ) -> "Passes":
        """Return the passes of the output `out`; without an executor, all in this process.

        Removes what a killed launch was removing.
        """
        shutil.rmtree(out / REMOVED, ignore_errors=True)
        return cls(out / UNITS, executor or LocalPool(1), share, divided)

    def run(self, name: str, units: Sequence[WorkUnit], make: MakeUnit) -> list[Path]:
        """Make every unit of a pass that does not exist yet; return the folders of all, in order.

        A slice makes its own units. If others are still missing it ends with SliceDone, else it
        goes on to the merge: the last slice of an array finds all units.
        """
        is_sliced = self.share is not None and (self.divided is None or name in self.divided)
        if self._is_over and is_sliced:
            raise SliceDone
        self.root.mkdir(parents=True, exist_ok=True)
        own = self.share.of(units) if self.share is not None and is_sliced else units
        missing = self._missing(own)
        with progress(name, len(own), len(own) - len(missing)) as bar:
            self.executor.make(missing, make, self.root, name, bar)
        if is_sliced:
            self._end_slice(name, units)
        return [self.root / unit.name for unit in units]

    def _missing(self, units: Sequence[WorkUnit]) -> list[WorkUnit]:
        made = set(os.listdir(self.root))  # one listing, not one look per unit
        return [unit for unit in units if unit.name not in made]

    def _end_slice(self, name: str, units: Sequence[WorkUnit]) -> None:
        assert self.share is not None
        self._is_over = self.share.of_pass in ("", name)
        left = len(self._missing(units))
        if left and not self._is_over:
            raise SesameError(
                f"--share …:{self.share.of_pass}: {left} of {len(units)} work units of the earlier "
                f"pass {name} are missing; run all shares of {name} first"
            )
        if left:
            raise SliceDone

    def merge(self, name: str, make: MakeUnit) -> Path:
        """Make the one unit between two passes, here; return its folder.

        Several slices may do so at the same time; the first to finish wins.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        run_unit(WorkUnit(name, None), make, self.root)
        return self.root / name

    def end_slices(self) -> None:
        """Raise SliceDone in a slice: only a launch of the whole stage goes on from here."""
        if self.share is not None:
            raise SliceDone

    def remove(self) -> None:
        """Remove all units, once the output is complete.

        Renames before removing: if this process is killed here, no half-removed unit looks
        complete.
        """
        removed = self.root.with_name(REMOVED)
        os.replace(self.root, removed)
        shutil.rmtree(removed)
