"""Starts the ranks of a pretraining, waits for them, and raises if the budget was not spent.

On one machine ranks are child processes with the environment variables that `torchrun` sets
(`processes`). In a SLURM job with one task per rank (slurm/train.sbatch), `srun` starts them on all
nodes. Without SLURM, one launcher per node starts them (`nodes`).
Writes `.rank.json`, and the ranks' logs and errors below `.ranks/`, in the run's folder.
"""

import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from data_prep.errors import SesameError, UsageError
from pipeline.store.checkpoints import CHECKPOINTS, checkpoints
from pipeline.training.config import TrainerConfig
from pipeline.training.environment import local_variables, shared_variables
from pipeline.training.exits import (
    DIVERGED,
    INTERRUPTED,
    REPORTS,
    Diverged,
    Interrupted,
    read_end,
)
from pipeline.training.job import Job
from pipeline.training.nodes import lead, placement
from pipeline.training.processes import FINE, Process, end_all, forwarding, run_ranks


class Steps(Protocol):
    """Starts steps of the SLURM job that this process runs in."""

    def first_node(self) -> str:
        """Return the address of the job's first node."""

    def start(self, options: list[str], command: list[str], variables: dict[str, str]) -> Process:
        """Start a command with srun, its options and more environment variables."""


def launch(run_dir: Path, job: Job, steps: Steps) -> None:
    """Start all ranks and return when the budget is spent.

    `steps` is used only in a SLURM job with one task per rank. Raises `Interrupted` after a request
    to stop, `Diverged`, or `SesameError` if a rank failed.
    """
    trainer = job.trainer
    place = placement(trainer)
    by_srun = place is None and is_for_srun(trainer)
    _clear_reports(run_dir)
    job.write(run_dir)
    if place is not None:
        rank, code = lead(run_dir, trainer, place)
    elif by_srun:
        rank, code = _srun_ranks(run_dir, trainer, steps)
    else:
        rank, code = run_ranks(run_dir, local_variables(trainer), trainer.devices)
    _raise_unless_done(run_dir, rank, code)


def launch_here(run_dir: Path, trainer: TrainerConfig, entry: str) -> None:
    """Start the ranks of one machine on the module `entry`; otherwise as `launch`."""
    _clear_reports(run_dir)
    rank, code = run_ranks(run_dir, local_variables(trainer), trainer.devices, entry=entry)
    _raise_unless_done(run_dir, rank, code)


def _clear_reports(run_dir: Path) -> None:
    reports = run_dir / REPORTS
    reports.mkdir(parents=True, exist_ok=True)
    for report in reports.iterdir():
        report.unlink()


def _raise_unless_done(run_dir: Path, rank: int, code: int) -> None:
    """Raise the error that an exit code stands for; 0: none."""
    if code == DIVERGED:
        raise Diverged.read(run_dir)
    if code not in FINE:
        raise _failure(run_dir / REPORTS, rank, code)
    if code == INTERRUPTED:
        saved = checkpoints(run_dir / CHECKPOINTS)
        step = int(saved[-1].name) if saved else 0
        raise Interrupted(f"interrupted at step {step}; run the same command to go on")


def is_for_srun(trainer: TrainerConfig) -> bool:
    """Return True inside a SLURM job with one task per rank.

    Raises `UsageError` for several nodes outside such a job.
    """
    nodes = int(os.environ.get("SLURM_JOB_NUM_NODES", 0))
    tasks = int(os.environ.get("SLURM_NTASKS_PER_NODE", 0))
    in_step = "SLURM_STEP_ID" in os.environ  # already inside an srun, such as submitit's
    if (nodes, tasks) == (trainer.num_nodes, trainer.devices) and not in_step:
        return True
    if trainer.num_nodes > 1:
        here = (
            f"the job has {nodes} nodes and {tasks} tasks per node" if nodes else "this is no job"
        )
        raise UsageError(
            f"trainer.num_nodes={trainer.num_nodes}: several nodes need a SLURM job with "
            f"--nodes={trainer.num_nodes} --ntasks-per-node={trainer.devices} ({here}); use "
            "sesame submit, or sbatch slurm/train.sbatch; without SLURM, start the command on "
            "every node with MASTER_ADDR, MASTER_PORT and NODE_RANK set"
        )
    return False


def srun_options(trainer: TrainerConfig) -> list[str]:
    """Return the options of the step that runs all ranks.

    srun does not take --cpus-per-task over from the job (SLURM 22.05 and later).
    """
    cpus = os.environ.get("SLURM_CPUS_PER_TASK")
    return [
        f"--nodes={trainer.num_nodes}",
        f"--ntasks-per-node={trainer.devices}",
        *([f"--cpus-per-task={cpus}"] if cpus else []),
        "--kill-on-bad-exit=1",
        "--export=ALL",
    ]


def _srun_ranks(run_dir: Path, trainer: TrainerConfig, steps: Steps) -> tuple[int, int]:
    """Start all ranks with srun and wait; return the first failed rank, or else the one with the
    highest code, and its exit code."""
    # Each rank sets its own numbers, see `rank.prepare_srun_task`.
    variables = shared_variables(trainer) | {"MASTER_ADDR": steps.first_node()}
    command = [sys.executable, "-m", "pipeline.training.rank", str(run_dir.resolve())]
    started: list[Process] = []
    with ExitStack() as stack:
        stack.callback(end_all, started)
        stack.enter_context(forwarding(started, as_signal=signal.SIGUSR1))
        started.append(steps.start(srun_options(trainer), command, variables))
        failed = started[0].wait()
    codes = [read_end(run_dir, rank) for rank in range(trainer.world_size)]
    if failed or None in codes:
        rank = next((n for n, code in enumerate(codes) if code is None), 0)
        return rank, failed or 1
    known = [code for code in codes if code is not None]
    worst = known.index(max(known))
    return worst, known[worst]


def _failure(reports: Path, rank: int, code: int) -> SesameError:
    """Return the error that a rank wrote, or one that states its exit code and log."""
    errors = sorted(reports.glob("*.error"))
    if errors:
        return SesameError(errors[0].read_text())
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"failed with code {code}"
    where = "above" if rank == 0 else f"in {reports / f'{rank}.log'}"
    return SesameError(
        f"rank {rank} {how}, its last output is {where}; run the same command to go on from the "
        "last checkpoint"
    )
