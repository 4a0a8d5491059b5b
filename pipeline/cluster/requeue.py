"""Requeue or chain a job after it was asked to stop.

The scripts in slurm/ set SESAME_CONTINUE (requeue, chain or stop). SLURM's warning before the time
limit (USR1) reaches the command itself. Pretraining passes it to its ranks, which save at the end
of the step; fine-tuning does the same. All other stages stop at once and keep their finished work
units.
"""

import os
import signal
from pathlib import Path
from typing import Any

from data_prep.errors import SesameError
from data_prep.files import write_atomically
from data_prep.progress import console
from pipeline.cluster import slurm
from pipeline.cluster.frozen import Submission
from pipeline.training.exits import INTERRUPTED, Interrupted

PROGRESS = ".job_progress"  # folder of the store: how far jobs were that were submitted by hand
WARNINGS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)


def listen() -> None:
    """Install signal handlers: SLURM's warnings raise Interrupted."""
    for number in WARNINGS:
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: Any) -> None:
    name = signal.Signals(number).name
    raise Interrupted(f"interrupted by {name}; run the same command to go on")


def continue_job(progress: str, store: Path | None = None) -> int:
    """Requeue this job or submit a successor, as SESAME_CONTINUE says; return the exit code.

    `progress` describes how far the work in `store` is. If the job ended at the same point twice,
    it is not continued.
    """
    for number in WARNINGS:  # ignore further warnings from here on
        signal.signal(number, signal.SIG_IGN)
    job = os.environ["SLURM_JOB_ID"]
    how = os.environ["SESAME_CONTINUE"]
    state = slurm.job_state(job)
    if state != "RUNNING":  # cancelled, or already requeued by SLURM
        console.print(f"job {job} is {state.lower()}: leaving the rest to SLURM")
        return INTERRUPTED
    if how == "stop":
        return INTERRUPTED
    if not _moved_on(progress, store):
        console.print(
            f"two starts have ended at the same point ({progress}), so the job is not continued; "
            "give it more time, or save more often (trainer.checkpoint_every in pretraining, "
            "finetune.checkpoint_minutes in fine-tuning)"
        )
        return 1
    if how == "requeue":
        return _requeue(job)
    return _hand_over(job)


def _requeue(job: str) -> int:
    """Ask SLURM to start this job again; raise a SesameError if the site does not allow it."""
    try:
        slurm.call("scontrol", "requeue", job)
    except slurm.Refused as error:
        raise SesameError(
            f"job {job} cannot be requeued here ({error}); what it has made is kept: set "
            "continue: chain in the site file and submit again"
        ) from error
    console.print(f"job {job} is requeued")
    return INTERRUPTED


def _moved_on(progress: str, store: Path | None) -> bool:
    """Return True if this start got further than the previous one, or if that is not known.

    The progress of a submitted job is kept in a file beside its script, that of a job submitted by
    hand in the store.
    """
    path = _kept_progress(store)
    if path is None:
        return True
    before = path.read_text() if path.exists() else None
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, progress)
    return progress != before


def _kept_progress(store: Path | None) -> Path | None:
    task = os.environ.get("SLURM_ARRAY_TASK_ID", "")
    script = os.environ.get("SESAME_SCRIPT")
    if script is not None:
        return Path(script).with_suffix(f".progress{task}")
    return store and store / PROGRESS / f"{os.environ['SLURM_JOB_ID']}_{task}"


def _hand_over(job: str) -> int:
    """Submit this job's script again; jobs that wait for this job then wait for the new one.

    Of an array that makes outputs, only this task is submitted again.
    """
    if "SESAME_SHARES" in os.environ:
        console.print("the merge job will make this task's remaining work units")
        return 0
    script = os.environ.get("SESAME_SCRIPT")
    if script is None:
        console.print("SESAME_CONTINUE=chain works for submitted jobs; submit the same line again")
        return INTERRUPTED
    task = os.environ.get("SLURM_ARRAY_TASK_ID", "")
    successor = slurm.submit_script(Path(script), [], array=task)
    if task:
        job, successor = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{task}", f"{successor}_{task}"
    moved = slurm.move_dependants(job, successor)
    Submission(Path(script).parent).add_successor(job, successor)
    waiting = f", for which {', '.join(moved)} now wait" if moved else ""
    console.print(f"job {job} is followed by job {successor}{waiting}")
    return INTERRUPTED
