"""How a job goes on that was told to leave: it saved, and requeues itself or names a successor.

The scripts in slurm/ set SESAME_CONTINUE (requeue, chain or stop). SLURM's warning before the
time limit (USR1) reaches the command itself; pretraining passes it to its ranks, which save at the
end of the step, and everything else stops where it is and keeps its finished pieces.
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

WARNINGS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)


def listen() -> None:
    """Have SLURM's warnings stop the work in an orderly way."""
    for number in WARNINGS:
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: Any) -> None:
    name = signal.Signals(number).name
    raise Interrupted(f"interrupted by {name}; run the same command to go on")


def continue_job(progress: str) -> int:
    """Arrange that the work goes on; `progress` says how far it is. Returns the exit code."""
    for number in WARNINGS:  # more of them change nothing from here on
        signal.signal(number, signal.SIG_IGN)
    job = os.environ["SLURM_JOB_ID"]
    how = os.environ["SESAME_CONTINUE"]
    state = slurm.job_state(job)
    if state != "RUNNING":  # cancelled, or requeued by SLURM itself: it knows what it does
        console.print(f"job {job} is {state.lower()}: leaving the rest to SLURM")
        return INTERRUPTED
    if how == "stop":
        return INTERRUPTED
    if not _moved_on(progress):
        console.print(
            f"two starts have ended here ({progress}): not going on; give the job more time, or "
            "save more often (trainer.checkpoint_every)"
        )
        return 1
    if how == "requeue":
        return _requeue(job)
    return _hand_over(job)


def _requeue(job: str) -> int:
    """Have SLURM start this job again; some sites do not allow it."""
    try:
        slurm.call("scontrol", "requeue", job)
    except slurm.Refused as error:
        raise SesameError(
            f"job {job} cannot be requeued here ({error}); what it has made is kept: set "
            "continue: chain in the site file and submit again"
        ) from error
    console.print(f"job {job} is requeued")
    return INTERRUPTED


def _moved_on(progress: str) -> bool:
    """Whether this start got further than the one before; known for submitted jobs."""
    script = os.environ.get("SESAME_SCRIPT")
    if script is None:
        return True
    task = os.environ.get("SLURM_ARRAY_TASK_ID", "")
    path = Path(script).with_suffix(f".progress{task}")
    before = path.read_text() if path.exists() else None
    write_atomically(path, progress)
    return progress != before


def _hand_over(job: str) -> int:
    """Submit this job's script again, and have everything that waits for this job wait for that."""
    if "SLURM_ARRAY_TASK_ID" in os.environ:
        console.print("the merge makes what this task has left")
        return 0
    script = os.environ.get("SESAME_SCRIPT")
    if script is None:
        console.print("SESAME_CONTINUE=chain works for submitted jobs; submit the same line again")
        return INTERRUPTED
    successor = slurm.submit_script(Path(script), [])
    moved = slurm.move_dependants(job, successor)
    Submission(Path(script).parent).add_successor(job, successor)
    waiting = f", for which {', '.join(moved)} now wait" if moved else ""
    console.print(f"job {job} is followed by job {successor}{waiting}")
    return INTERRUPTED
