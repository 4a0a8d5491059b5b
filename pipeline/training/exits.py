"""How a launch can end without being done, and how ranks tell the launcher: exit codes, a file."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from data_prep.errors import SesameError

INTERRUPTED = 75  # EX_TEMPFAIL: asked to stop, saved; the same command goes on
DIVERGED = 76  # dropped step after step; what was dropped is in the report
REPORTS = ".ranks"  # the folder of the ranks' logs and errors in the run's directory
DROPPED = "dropped.json"


def write_end(run_dir: Path, rank: int, code: int) -> None:
    """Leave a rank's exit code where the launcher finds it."""
    (run_dir / REPORTS / f"{rank}.exit").write_text(str(code))


def read_end(run_dir: Path, rank: int) -> int | None:
    """The exit code a rank left, if it could."""
    path = run_dir / REPORTS / f"{rank}.exit"
    return int(path.read_text()) if path.exists() else None


class Interrupted(SesameError):
    """Training was asked to stop, and saved; nothing is wrong."""

    exit_code = INTERRUPTED


@dataclass(frozen=True)
class Dropped:
    """Rows of successive dropped steps."""

    phase: int
    start: int
    stop: int
    reason: str


class Diverged(SesameError):
    """Too many steps in a row had to be dropped."""

    def __init__(self, dropped: Dropped) -> None:
        super().__init__(
            f"training has diverged: every step on rows {dropped.start:,} to {dropped.stop:,} of "
            f"phase {dropped.phase + 1} had to be dropped, the last because {dropped.reason}"
        )
        self.dropped = dropped

    def write(self, run_dir: Path) -> None:
        (run_dir / REPORTS / DROPPED).write_text(json.dumps(asdict(self.dropped)))

    @classmethod
    def read(cls, run_dir: Path) -> "Diverged":
        return cls(Dropped(**json.loads((run_dir / REPORTS / DROPPED).read_text())))
