"""Ways a launch can end early, and the exit codes and files by which ranks report them."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from data_prep.errors import SesameError

INTERRUPTED = 75  # EX_TEMPFAIL: asked to stop, checkpoint saved; the same command resumes
DIVERGED = 76  # too many consecutive dropped steps; `DROPPED` names their rows
REPORTS = ".ranks"  # subfolder of the run's folder with the ranks' logs and errors
DROPPED = "dropped.json"


def write_end(run_dir: Path, rank: int, code: int) -> None:
    """Write a rank's exit code to `.ranks/<rank>.exit`, for the launcher."""
    (run_dir / REPORTS / f"{rank}.exit").write_text(str(code))


def read_end(run_dir: Path, rank: int) -> int | None:
    """Read the exit code of a rank; None if it wrote none."""
    path = run_dir / REPORTS / f"{rank}.exit"
    return int(path.read_text()) if path.exists() else None


class Interrupted(SesameError):
    """Work was asked to stop; a training has saved a checkpoint. This is not a failure.

    `progress` describes how far the outputs are, if that is known: it differs whenever a start got
    further than the one before. `store`: the folder they are in.
    """

    exit_code = INTERRUPTED

    def __init__(
        self, message: str, progress: str | None = None, store: Path | None = None
    ) -> None:
        super().__init__(message)
        self.progress, self.store = progress, store


@dataclass(frozen=True)
class Dropped:
    """Rows `start` up to `stop` of a phase, read by consecutive dropped steps."""

    phase: int
    start: int
    stop: int
    reason: str


class Diverged(SesameError):
    """Too many consecutive steps had to be dropped."""

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
