"""Print the logs of a submission's jobs, and what is added to them."""

from collections.abc import Callable
from pathlib import Path

from pipeline.cluster.frozen import Submission, SubmittedJob


def choose_jobs(jobs: list[SubmittedJob], word: str) -> list[SubmittedJob]:
    """Return the jobs with this stage, name, title or id; a whole array for the array's id."""
    return [
        job
        for job in jobs
        if word in (job.stage, job.name, job.title, job.id, job.id.partition("_")[0])
    ]


class Follower:
    """Prints the logs of jobs, each under its name, and later only what was added to them."""

    def __init__(
        self, submission: Submission, jobs: list[SubmittedJob], show: Callable[[str], None]
    ) -> None:
        self._folder = submission.logs
        self._patterns = list(dict.fromkeys(job.log_pattern for job in jobs))
        self._show = show
        self._read: dict[Path, int] = {}  # bytes that were printed
        self._last: Path | None = None

    def print_new(self) -> int:
        """Print what was added since the last call; return the number of logs seen so far."""
        for log in sorted(path for each in self._patterns for path in self._folder.glob(each)):
            with open(log, "rb") as stream:
                stream.seek(self._read.setdefault(log, 0))
                text = stream.read()
            complete = text[: text.rfind(b"\n") + 1]  # a line that is still being written waits
            if complete:
                if log != self._last:
                    self._show(f"==> {log} <==\n")
                self._show(complete.decode(errors="replace"))
                self._read[log] += len(complete)
                self._last = log
        return len(self._read)
