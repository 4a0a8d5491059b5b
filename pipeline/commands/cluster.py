"""`sesame status`, `logs` and `cancel`, and `job`, which submitted scripts run."""

import os
import time
from pathlib import Path

from rich.live import Live

from data_prep.errors import UsageError
from data_prep.passes import ArraySlice
from data_prep.progress import console
from pipeline.cluster import slurm
from pipeline.cluster.causes import STARTS
from pipeline.cluster.frozen import (
    Submission,
    SubmittedJob,
    find_submission,
    refuse_changed_files,
    thaw_node,
)
from pipeline.cluster.logs import Follower, choose_jobs
from pipeline.cluster.status import as_table, look
from pipeline.commands.arguments import Arguments
from pipeline.commands.store import open_store
from pipeline.commands.submitted_sweep import SWEEPS, print_sweep
from pipeline.stages import STAGES
from pipeline.store.outputs import Store
from pipeline.training.exits import Interrupted
from pipeline.workflow.execute import execute, make_share

LOOK_SECONDS = 2.0


def job(arguments: Arguments) -> None:
    """Make the output of one frozen stage instance, or a share of its work units."""
    if len(arguments.words) != 1:
        raise UsageError("job: name the file of one stage instance, nodes/<job>.json")
    share = arguments.options.get("--share")
    node = thaw_node(_instance(Path(arguments.words[0])), STAGES)
    title = f"{node.stage} {node.label}".rstrip()
    print(f"{STARTS}{title} {node.output.path}", flush=True)
    refuse_changed_files(node)
    try:
        if share is not None:
            make_share(node, ArraySlice.parse(share))
        else:
            execute(node)
    except Interrupted as error:
        done = node.maker.how_far(node.output.path)
        raise Interrupted(f"interrupted: {title}, {done}", store=node.store) from error


def _instance(path: Path) -> Path:
    """Return the file of a stage instance; of a folder, the one of this task of an array."""
    return path / f"{os.environ['SLURM_ARRAY_TASK_ID']}.json" if path.is_dir() else path


def status(arguments: Arguments) -> None:
    """Print a table of a submission's jobs; on a terminal, update it until all have ended.

    Once all jobs of a sweep have ended, the table of its points follows.
    """
    slurm.require()
    store = open_store(arguments)
    submission = find_submission(store, _one_word(arguments))
    lines = look(submission, store, STAGES)
    if "--once" in arguments.options or not console.is_terminal:
        from rich import print as show

        show(as_table(submission, lines))
    else:
        with Live(as_table(submission, lines), console=console, auto_refresh=False) as live:
            while not all(line.is_over for line in lines):
                time.sleep(LOOK_SECONDS)
                lines = look(submission, store, STAGES)
                live.update(as_table(submission, lines), refresh=True)
    sweep = store.root / SWEEPS / submission.id
    if sweep.is_dir() and all(line.is_over for line in lines):
        print_sweep(sweep, store)


def logs(arguments: Arguments) -> None:
    """Print the logs of a submission's jobs; with --follow, until these jobs have ended."""
    store = open_store(arguments)
    submission, jobs = _chosen(store, arguments.words)
    follower = Follower(submission, jobs, lambda text: print(text, end="", flush=True))
    if "--follow" in arguments.options:
        slurm.require()
        ids = {job.id for job in jobs}
        lines = look(submission, store, STAGES)
        while any(not line.is_over for line in lines if line.job.id in ids):
            follower.print_new()
            time.sleep(LOOK_SECONDS)
            lines = look(submission, store, STAGES)
    if follower.print_new() == 0:
        print("no log yet; sesame status shows what the jobs wait for")


def _chosen(store: Store, words: list[str]) -> tuple[Submission, list[SubmittedJob]]:
    """Return the submission and the jobs that are named.

    A single word names jobs of the newest submission, or else a submission.
    """
    if len(words) > 2:
        raise UsageError(f"{words[2]}: name a submission, and a stage or job")
    if len(words) == 1:
        newest = find_submission(store, None)
        if jobs := choose_jobs(newest.jobs(), words[0]):
            return newest, jobs
    submission = find_submission(store, words[0] if words else None)
    if len(words) < 2:
        return submission, submission.jobs()
    if jobs := choose_jobs(submission.jobs(), words[1]):
        return submission, jobs
    names = ", ".join(dict.fromkeys(job.name for job in submission.jobs()))
    raise UsageError(f"{words[1]}: no such job in {submission.id}; it has {names}")


def cancel(arguments: Arguments) -> None:
    """Cancel a submission's waiting and running jobs."""
    slurm.require()
    submission = find_submission(open_store(arguments), _one_word(arguments))
    queue = slurm.queue()
    live = [
        job.id
        for job in submission.jobs()
        if any(task.is_live for task in slurm.tasks_of(job.id, queue))
    ]
    slurm.cancel_jobs(live)
    submission.note_cancelled(live)
    said = f"cancelled {', '.join(live)}" if live else "nothing is waiting or running"
    print(f"submission {submission.id}: {said}")


def _one_word(arguments: Arguments) -> str | None:
    if len(arguments.words) > 1:
        raise UsageError(f"{arguments.words[1]}: name one submission, or none for the newest")
    return arguments.words[0] if arguments.words else None
