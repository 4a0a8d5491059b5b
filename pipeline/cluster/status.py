"""The table of `sesame status`: each job's state, reason, node, time, progress, speed, log."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from pipeline.cluster import slurm
from pipeline.cluster.frozen import Submission, SubmittedJob
from pipeline.store.outputs import Output, Store
from pipeline.workflow.execute import shares_made
from pipeline.workflow.graph import Stages

COLOURS = {
    "done": "green", "running": "cyan", "waiting": "dim", "failed": "red", "cancelled": "yellow",
    "ended": "red",
}  # fmt: skip
# Shown for a failed job without a log: its node could not open the log file.
CANNOT_OPEN_LOG = "the node cannot see the log's folder; put the store on a shared disk"


@dataclass(frozen=True)
class JobRow:
    """The status of one job."""

    job: SubmittedJob
    state: str  # done, running, waiting, failed, cancelled, ended
    reason: str
    nodes: str
    elapsed: str
    progress: str
    log: Path | None

    @property
    def is_over(self) -> bool:
        return self.state not in ("running", "waiting")


def look(submission: Submission, store: Store, stages: Stages) -> list[JobRow]:
    """Return the status of every job of a submission."""
    queue = slurm.queue()
    return [
        _line(job, queue.get(job.id, []), submission, store, stages) for job in submission.jobs()
    ]


def _line(
    job: SubmittedJob, tasks: list[slurm.Task], submission: Submission, store: Store, stages: Stages
) -> JobRow:
    output = store.from_reference(job.reference)
    state = "done" if output.is_done or _has_made_all(job, output) else _state(tasks)
    logs = sorted(submission.logs.glob(job.log_pattern), key=lambda path: path.stat().st_mtime)
    log = logs[-1] if logs else None
    reasons = [task.reason for task in tasks if task.reason not in ("None", "")]
    reason = reasons[0] if reasons and state in ("waiting", "cancelled") else ""
    if state in ("failed", "ended"):
        reason = _last_words(log) or CANNOT_OPEN_LOG
    running = [task for task in tasks if task.state == "RUNNING"]
    seen = running or tasks
    return JobRow(
        job,
        state,
        reason,
        ",".join(dict.fromkeys(task.nodes for task in seen if task.nodes)),
        max((task.elapsed for task in seen), key=lambda text: (len(text), text), default=""),
        "" if state in ("done", "waiting") else _progress(job, tasks, output, stages),
        log,
    )


def _has_made_all(job: SubmittedJob, output: Output) -> bool:
    """Return True if an array's shares are all made; SLURM may have forgotten the array by now."""
    return job.shares > 0 and len(shares_made(output, job.shares)) == job.shares


def _state(tasks: list[slurm.Task]) -> str:
    """Return one word for all tasks of a job; `ended` if SLURM no longer lists it."""
    states = {task.state for task in tasks}
    if not states:
        return "ended"  # SLURM forgets jobs some minutes after their end
    if any(task.state == "RUNNING" for task in tasks):
        return "running"
    if "CANCELLED" in states or any(task.reason == slurm.NEVER for task in tasks):
        return "cancelled"
    if states == {"COMPLETED"}:
        return "done"
    return "waiting" if any(task.is_live for task in tasks) else "failed"


def _progress(job: SubmittedJob, tasks: list[slurm.Task], output: Output, stages: Stages) -> str:
    if job.shares:
        counted = Counter(task.state.lower() for task in tasks)
        return ", ".join(f"{count} {state}" for state, count in sorted(counted.items()))
    if not output.is_begun:
        return ""
    speed = _speed(output.path / "timing.jsonl")
    return stages[job.stage].how_far(output.path) + (f", {speed}" if speed else "")


def _speed(timing: Path) -> str:
    """Return step and speed from the last complete line of a pretraining's timings."""
    if not timing.exists():
        return ""
    lines = [line for line in timing.read_text().splitlines(keepends=True) if line.endswith("\n")]
    if not lines:
        return ""
    last = json.loads(lines[-1])
    return f"now at {last['step']:,}, {last['tokens_per_second']:,.0f} tokens/s"


def _last_words(log: Path | None) -> str:
    if log is None:
        return ""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    words = [line for line in lines if line.startswith("sesame ")] or lines
    return words[-1] if words else "its log is empty"


def as_table(submission: Submission, lines: list[JobRow]) -> Table:
    """Return the jobs as a table; the title names the folder of the logs."""
    table = Table(box=None, pad_edge=False, header_style="dim", title_justify="left")
    table.title = escape(f"{submission.id}, logs in {submission.logs}")
    for heading in ("job", "id", "state", "node", "time", "log"):
        table.add_column(heading, no_wrap=True)
    table.add_column("progress, reason", overflow="fold", min_width=24)
    for line in lines:
        label = f"[dim]{escape(line.job.label)}[/]" if line.job.label else ""
        said = [line.progress, escape(line.reason), label]
        table.add_row(
            line.job.name, line.job.id, f"[{COLOURS[line.state]}]{line.state}[/]", line.nodes,
            line.elapsed, line.log.name if line.log else "",
            "; ".join(part for part in said if part),
        )  # fmt: skip
    return table
