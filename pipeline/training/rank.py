"""One rank of a pretraining: `python -m pipeline.training.rank <run dir>`, started by the launcher.

Reads `.rank.json` (see `job`), the tokenizer, the examples and the checkpoint to go on from; writes
metrics.jsonl, timing.jsonl, launches.jsonl and checkpoints/. Exit codes: 0 the budget is spent, 75
asked to stop and saved, 76 diverged, others failed. A rank's error is in `.ranks/<rank>.error`.
"""

import logging
import os
import signal
import socket
import sys
import warnings
from pathlib import Path
from typing import Any

import psutil

from data_prep.errors import SesameError
from data_prep.files import write_atomically
from data_prep.progress import console
from pipeline.training.exits import DIVERGED, INTERRUPTED, REPORTS, Diverged, write_end
from pipeline.training.job import Job

STOP_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Remembers that a signal came; all ranks agree about it at the end of a step."""

    def __init__(self) -> None:
        self.came = False

    def listen(self) -> None:
        """Handle the signals of preemption, of SLURM and of a user, here and nowhere else."""
        for number in STOP_SIGNALS:
            signal.signal(number, self._note)

    def _note(self, number: int, frame: Any) -> None:
        self.came = True


def this_rank() -> int:
    """The number of this process among all ranks, as whoever started it says."""
    return int(os.environ.get("RANK", 0))


def is_srun_task() -> bool:
    """Whether `srun` started this rank, and not our launcher or `torchrun`."""
    return "SLURM_PROCID" in os.environ and "RANK" not in os.environ


def prepare_srun_task(run_dir: Path) -> None:
    """Give a task of `srun` the variables, the network interface and the log that ranks have."""
    names = {
        "RANK": "SLURM_PROCID",
        "LOCAL_RANK": "SLURM_LOCALID",
        "GROUP_RANK": "SLURM_NODEID",
        "WORLD_SIZE": "SLURM_NTASKS",
        "LOCAL_WORLD_SIZE": "SLURM_NTASKS_PER_NODE",
    }
    os.environ.update({ours: os.environ[theirs] for ours, theirs in names.items()})
    os.environ.setdefault("GLOO_SOCKET_IFNAME", interface_to(os.environ["MASTER_ADDR"]))
    log = os.open(run_dir / REPORTS / f"{this_rank()}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    if this_rank() != 0:  # rank 0 speaks in the job's log
        os.dup2(log, 2)


def interface_to(address: str) -> str:
    """The network interface that leads to a node; gloo else looks up host names, in vain."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))  # sends nothing, chooses the way
        own = probe.getsockname()[0]
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address == own for each in addresses):
            return str(name)
    raise SesameError(f"no network interface has {own}, the way to {address}")


def say(text: str) -> None:
    console.print(f"pretrain: {text}", markup=False)


def choose_accelerator(wanted: str) -> str:
    """cpu, cuda or mps; must come before DeepSpeed is imported, which decides then."""
    import torch

    found = "cpu"
    if torch.cuda.is_available():
        found = "cuda"
    elif torch.backends.mps.is_available():
        found = "mps"
    chosen = found if wanted == "auto" else wanted
    if chosen not in ("cpu", found):
        raise SesameError(
            f"trainer.accelerator={wanted}: this machine or torch build has none; "
            "use trainer.accelerator=cpu"
        )
    os.environ["DS_ACCELERATOR"] = chosen
    return chosen


def train(run_dir: Path, stop: StopRequest) -> bool:
    """Train until the budget is spent (True) or somebody asks to stop (False)."""
    job = Job.read(run_dir)
    accelerator = choose_accelerator(job.trainer.accelerator)

    import torch
    from pytorch_lightning import Trainer

    _quieten()  # after the import, which sets levels of its own
    from pipeline.training.build import assemble

    torch.manual_seed(job.trainer.seed)
    run = assemble(job, run_dir, this_rank(), accelerator, lambda: stop.came, say)
    if run.module.finished:
        run.close()
        return True
    trainer = Trainer(
        strategy=run.engine,
        accelerator="gpu" if accelerator == "cuda" else accelerator,
        devices=job.trainer.devices,
        num_nodes=job.trainer.num_nodes,
        max_epochs=1,  # endless: phases and the budget end the steps
        callbacks=run.callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    # Lightning's own handlers save, or talk to other ranks, inside the handler.
    trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]
    run.watchdog.start()
    try:
        trainer.fit(run.module, run.steps)
    finally:
        run.close()
    return run.module.finished


def _quieten() -> None:
    """Silence advice of libraries that does not concern users of this one."""
    warnings.filterwarnings("ignore", module=r"pytorch_lightning|lightning_fabric|torch|deepspeed")
    for name in ("pytorch_lightning", "lightning_fabric", "DeepSpeed"):
        logging.getLogger(name).setLevel(logging.ERROR)


def main(run_dir: Path) -> int:
    """Train and say how it ended, as an exit code."""
    stop = StopRequest()
    stop.listen()
    if not is_srun_task():
        return train_to_end(run_dir, stop)
    prepare_srun_task(run_dir)
    code = train_to_end(run_dir, stop)
    write_end(run_dir, this_rank(), code)
    # srun ends all tasks when one fails; a rank that was only asked to stop has not.
    return 0 if code in (INTERRUPTED, DIVERGED) else code


def train_to_end(run_dir: Path, stop: StopRequest) -> int:
    """Train; errors become exit codes."""
    try:
        return 0 if train(run_dir, stop) else INTERRUPTED
    except Diverged as error:
        error.write(run_dir)  # the same on every rank
        return DIVERGED
    except SesameError as error:
        report = run_dir / REPORTS / f"{this_rank()}.error"
        try:
            write_atomically(report, str(error))
        except OSError:  # the disk is full: the launcher points to these last words
            say(str(error))
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
