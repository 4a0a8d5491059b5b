"""Starts the ranks of a pretraining, waits for them, and raises if the budget was not spent.

On one machine ranks are child processes with the environment variables that `torchrun` sets. In a
SLURM job with one task per rank (slurm/train.sbatch), `srun` starts them on all nodes. In both
cases ranks end with this process, receive its signals, and are stopped when one of them fails.
Writes `.rank.json`, and the ranks' logs and errors below `.ranks/`, in the run's folder.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from data_prep.errors import SesameError, UsageError
from data_prep.work_units import end_with_parent, usable_cores
from pipeline.store.checkpoints import CHECKPOINTS, checkpoints
from pipeline.training.config import TrainerConfig
from pipeline.training.exits import (
    DIVERGED,
    INTERRUPTED,
    REPORTS,
    Diverged,
    Interrupted,
    read_end,
)
from pipeline.training.job import Job
from pipeline.training.rank import STOP_SIGNALS

FINE = (0, INTERRUPTED)  # exit codes of a rank that did not fail
LOOK_SECONDS = 0.1  # between two polls of the ranks
GRACE_SECONDS = 10.0  # for the other ranks to end once one has failed
# oneDNN's highest instruction set without AMX: some virtual machines report AMX but crash on it.
WITHOUT_AMX = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"}
BF16_PROBE = """
import sys, torch
if sys.argv[1] == "auto" and torch.cuda.is_available(): sys.exit(0)
x = torch.randn(512, 512, requires_grad=True)
with torch.autocast("cpu", torch.bfloat16):
    y = torch.nn.functional.linear(x, torch.randn(512, 512, requires_grad=True))
y.float().sum().backward()
"""


def launch(run_dir: Path, job: Job, first_node: Callable[[], str]) -> None:
    """Start all ranks and return when the budget is spent.

    `first_node` returns the address of the SLURM job's first node; it is called only with srun.
    Raises `Interrupted` after a request to stop, `Diverged`, or `SesameError` if a rank failed.
    """
    trainer = job.trainer
    by_srun = is_for_srun(trainer)
    reports = run_dir / REPORTS
    reports.mkdir(parents=True, exist_ok=True)
    for report in reports.iterdir():
        report.unlink()
    job.write(run_dir)
    if by_srun:
        rank, code = _srun_ranks(run_dir, trainer, first_node())
    else:
        rank, code = _run_ranks(run_dir, trainer)
    if code == DIVERGED:
        raise Diverged.read(run_dir)
    if code not in FINE:
        raise _failure(reports, rank, code)
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
            "sesame submit, or sbatch slurm/train.sbatch"
        )
    return False


def _srun_ranks(run_dir: Path, trainer: TrainerConfig, master: str) -> tuple[int, int]:
    """Start all ranks with srun and wait; return the first failed rank, or else the one with the
    highest code, and its exit code."""
    environment = rank_environment(trainer) | {"MASTER_ADDR": master}
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GLOO_SOCKET_IFNAME"):
        environment.pop(name)  # each rank sets its own, see `rank.prepare_srun_task`
    command = [
        "srun", f"--nodes={trainer.num_nodes}", f"--ntasks-per-node={trainer.devices}",
        "--kill-on-bad-exit=1", "--export=ALL", sys.executable, "-m", "pipeline.training.rank",
        str(run_dir.resolve()),
    ]  # fmt: skip
    started: list[subprocess.Popen[bytes]] = []
    with ExitStack() as stack:
        stack.callback(_end, started)
        stack.enter_context(_forwarding(started, as_signal=signal.SIGUSR1))
        started.append(
            subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
        )
        failed = started[0].wait()
    codes = [read_end(run_dir, rank) for rank in range(trainer.world_size)]
    if failed or None in codes:
        rank = next((n for n, code in enumerate(codes) if code is None), 0)
        return rank, failed or 1
    known = [code for code in codes if code is not None]
    worst = known.index(max(known))
    return worst, known[worst]


def _run_ranks(run_dir: Path, trainer: TrainerConfig) -> tuple[int, int]:
    """Start all ranks as child processes and wait; return the deciding rank and its exit code."""
    environment = rank_environment(trainer)
    command = [sys.executable, "-m", "pipeline.training.rank", str(run_dir)]
    with ExitStack() as stack:
        ranks: list[subprocess.Popen[bytes]] = []
        stack.callback(_end, ranks)
        stack.enter_context(_forwarding(ranks))
        for rank in range(trainer.devices):
            # Rank 0 writes to the terminal; the logs of the others are needed only if they fail.
            log = stack.enter_context(open(run_dir / REPORTS / f"{rank}.log", "wb"))
            ranks.append(
                subprocess.Popen(
                    command,
                    env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=None if rank == 0 else log,
                    start_new_session=True,  # Ctrl-C reaches this process only; it forwards it once
                    preexec_fn=end_with_parent,
                )
            )
        return _wait(ranks)


def _wait(ranks: list[subprocess.Popen[bytes]]) -> tuple[int, int]:
    """Wait for all ranks; return the first failed rank, or else the one with the highest code, and
    its exit code. When one fails, the others are killed after `GRACE_SECONDS`."""
    failed: tuple[int, int] | None = None
    deadline = 0.0
    while any(rank.poll() is None for rank in ranks):
        for number, rank in enumerate(ranks):
            code = rank.poll()
            if failed is None and code is not None and code not in FINE:
                failed, deadline = (number, code), time.monotonic() + GRACE_SECONDS
        if failed and time.monotonic() > deadline:
            _end(ranks)
        time.sleep(LOOK_SECONDS)
    codes = [rank.wait() for rank in ranks]
    worst = max(range(len(codes)), key=lambda number: (codes[number] not in FINE, codes[number]))
    return failed or (worst, codes[worst])


def _end(ranks: list[subprocess.Popen[bytes]]) -> None:
    for rank in ranks:
        if rank.poll() is None:
            rank.kill()
            rank.wait()


@contextmanager
def _forwarding(
    ranks: list[subprocess.Popen[bytes]], as_signal: signal.Signals | None = None
) -> Iterator[None]:
    """Forward stop signals to every rank inside the `with` block; ranks then save and exit.

    A second Ctrl-C kills them. `as_signal` is sent instead of the received signal: srun forwards
    USR1 to its tasks, but handles other signals itself.
    """
    interrupts = 0

    def forward(number: int, frame: Any) -> None:
        nonlocal interrupts
        interrupts += number == signal.SIGINT
        for rank in ranks:
            if rank.poll() is None:
                rank.send_signal(signal.SIGKILL if interrupts > 1 else as_signal or number)

    before = {number: signal.signal(number, forward) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def rank_environment(trainer: TrainerConfig) -> dict[str, str]:
    """Return the environment variables that all ranks share."""
    threads = trainer.threads or max(1, usable_cores() // trainer.devices)
    sources = str(Path(__file__).parents[2])
    path = os.environ.get("PYTHONPATH")
    added = {
        "WORLD_SIZE": str(trainer.devices),
        "LOCAL_WORLD_SIZE": str(trainer.devices),
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "PYTHONPATH": f"{sources}:{path}" if path else sources,
    }
    if sys.platform == "linux":
        # All ranks are on this machine, whose host name may not resolve.
        added["GLOO_SOCKET_IFNAME"] = "lo"
    if trainer.precision == "bf16-mixed" and trainer.accelerator in ("auto", "cpu"):
        added |= _working_bf16(trainer.accelerator)
    return dict(os.environ) | added


def _working_bf16(accelerator: str) -> dict[str, str]:
    """Return environment variables with which bf16 works on this CPU.

    Each candidate is tried in a child process, because a failure can be a crash. Raises
    `UsageError` if none works.
    """
    for variables in ({}, WITHOUT_AMX):
        probe = subprocess.run(
            [sys.executable, "-c", BF16_PROBE, accelerator],
            env=dict(os.environ) | variables,
            capture_output=True,
            check=False,
        )
        if probe.returncode == 0:
            return variables
    raise UsageError(
        "trainer.precision=bf16-mixed: this CPU cannot compute in bf16; use trainer.precision=fp32"
    )


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


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
