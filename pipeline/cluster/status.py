"""The rows of `sesame status`: each job's state, cause, node, time, progress, speed and log.

Jobs in the queue are described by squeue, ended ones by their output, sacct or their log.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from pipeline.cluster import slurm
from pipeline.cluster.causes import (
    CANCELLED,
    NOT_STARTED,
    Cause,
    accounted,
    cause_in_log,
    cause_of_state,
)
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
class TaskRow:
    """Tasks of an array that are in the same state for the same reason."""

    numbers: list[int]
    state: str
    reason: str


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
    tasks: list[TaskRow] = field(default_factory=list)  # of an array over work units

    @property
    def is_over(self) -> bool:
        return self.state not in ("running", "waiting")


def look(
    submission: Submission,
    store: Store,
    stages: Stages,
    queue: dict[str, list[slurm.Task]] | None = None,
) -> list[JobRow]:
    """Return the status of every job of a submission.

    `queue`: SLURM's queue if the caller has it; empty if SLURM does not answer.
    """
    queue = slurm.queue() if queue is None else queue
    jobs = submission.jobs()
    forgotten = [job.id for job in jobs if not slurm.tasks_of(job.id, queue)]
    states = accounted(forgotten)
    cancelled = submission.cancelled()
    rows: dict[str, JobRow] = {}
    for job in jobs:
        tasks = slurm.tasks_of(job.id, queue) or _from_accounting(job, states)
        waited_in_vain = any(rows[each].state != "done" for each in job.after if each in rows)
        known = CANCELLED if job.id in cancelled else NOT_STARTED if waited_in_vain else None
        rows[job.id] = _row(job, tasks, submission, store, stages, known)
    return list(rows.values())


def _from_accounting(job: SubmittedJob, states: dict[str, str]) -> list[slurm.Task]:
    """Return a job's tasks as sacct knows them."""
    return [
        slurm.Task(name.partition("_")[0], name.partition("_")[2] or "N/A", state, "", "", "")
        for name, state in states.items()
        if name == job.id or (not job.task and name.partition("_")[0] == job.id)
    ]


def _row(
    job: SubmittedJob,
    tasks: list[slurm.Task],
    submission: Submission,
    store: Store,
    stages: Stages,
    known: Cause | None,
) -> JobRow:
    """Return the row of a job. `known`: the cause to assume if SLURM and the log tell none."""
    output = store.from_reference(job.reference)
    logs = sorted(submission.logs.glob(job.log_pattern), key=lambda path: path.stat().st_mtime)
    log = logs[-1] if logs else None
    state, reason = _state(tasks)
    if output.is_done or _has_made_all(job, output):
        state, reason = "done", ""
    elif state == "ended":
        state, reason = _without_slurm(log, known)
    elif state == "failed" and not reason:
        reason = _own_words(log)
    seen = [task for task in tasks if task.state == "RUNNING"] or tasks
    return JobRow(
        job,
        state,
        reason,
        ",".join(dict.fromkeys(task.nodes for task in seen if task.nodes)),
        max((task.elapsed for task in seen), key=lambda text: (len(text), text), default=""),
        "" if job.shares or state in ("done", "waiting") else _progress(job, output, stages),
        log,
        _task_rows(tasks, submission, job) if job.shares and state != "done" else [],
    )


def _has_made_all(job: SubmittedJob, output: Output) -> bool:
    """Return True if an array's shares are all made; SLURM may have forgotten the array by now."""
    return job.shares > 0 and len(shares_made(output, job.shares, job.of_pass)) == job.shares


def _state(tasks: list[slurm.Task]) -> tuple[str, str]:
    """Return one word for all tasks of a job, and the reason; `ended` if SLURM tells nothing."""
    if not tasks:
        return "ended", ""
    found = [_state_of_task(task) for task in tasks]
    for state in ("running", "waiting", "failed", "cancelled"):
        reasons = [reason for each, reason in found if each == state]
        if reasons:
            return state, reasons[0]
    return "done", ""


def _state_of_task(task: slurm.Task) -> tuple[str, str]:
    """Return the state of a job or of one task of an array, and the reason if there is one."""
    if task.state == "RUNNING":
        return "running", ""
    if task.is_live:
        return "waiting", "" if task.reason in ("None", "") else task.reason
    if task.reason == slurm.NEVER:
        return "cancelled", str(NOT_STARTED)
    if task.state == "COMPLETED":
        return "done", ""
    cause = cause_of_state(task.state)
    return ("cancelled" if cause == CANCELLED else "failed"), str(cause or "")


def _without_slurm(log: Path | None, known: Cause | None) -> tuple[str, str]:
    """Return state and reason of a job that SLURM has forgotten, from our own records."""
    cause = cause_in_log(log.read_text(errors="replace")) if log else None
    cause = cause or known
    if cause is not None:
        return ("cancelled" if cause in (CANCELLED, NOT_STARTED) else "failed"), str(cause)
    return "ended", _own_words(log)


def _own_words(log: Path | None) -> str:
    """Return the last message of the job's own command."""
    if log is None:
        return CANNOT_OPEN_LOG
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    words = [line for line in lines if line.startswith("sesame ")] or lines
    return words[-1] if words else "its log is empty"


def _task_rows(tasks: list[slurm.Task], submission: Submission, job: SubmittedJob) -> list[TaskRow]:
    """Return the tasks of an array, grouped by state and reason."""
    groups: dict[tuple[str, str], list[int]] = {}
    for task in tasks:
        state, reason = _state_of_task(task)
        if state == "failed" and not reason:
            logs = sorted(submission.logs.glob(f"{job.name}-[0-9]*_{task.number}.log"))
            reason = _own_words(logs[-1] if logs else None)
        groups.setdefault((state, reason), []).append(int(task.number))
    return [TaskRow(sorted(numbers), *key) for key, numbers in groups.items()]


def _progress(job: SubmittedJob, output: Output, stages: Stages) -> str:
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


def as_table(submission: Submission, lines: list[JobRow]) -> Table:
    """Return the jobs as a table; the title names the folder of the logs."""
    table = Table(box=None, pad_edge=False, header_style="dim", title_justify="left")
    table.title = escape(f"{submission.id}, logs in {submission.logs}")
    for heading in ("job", "id", "state", "node", "time", "log"):
        table.add_column(heading, no_wrap=True)
    table.add_column("progress, reason", overflow="fold", min_width=24)
    for line in lines:
        label = f"[dim]{escape(line.job.label)}[/]" if line.job.label else ""
        reason = "" if line.tasks else escape(line.reason)  # the tasks' rows have their own
        said = [line.progress, reason, label]
        table.add_row(
            escape(line.job.title), line.job.id, _coloured(line.state), line.nodes, line.elapsed,
            line.log.name if line.log else "", "; ".join(part for part in said if part),
        )  # fmt: skip
        for group in line.tasks:
            name, state = f"  {_ranges(group.numbers)}", _coloured(group.state)
            table.add_row(name, "", state, "", "", "", escape(group.reason))
    return table


def _coloured(state: str) -> str:
    return f"[{COLOURS[state]}]{state}[/]"


def _ranges(numbers: Iterable[int]) -> str:
    """Return sorted numbers of tasks as text, such as `tasks 0-3, 7`."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    shown = ", ".join(f"{low}-{high}" if high > low else str(low) for low, high in ranges)
    return f"task {shown}" if shown.isdecimal() else f"tasks {shown}"
