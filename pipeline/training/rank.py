"""The process of one rank: `python -m pipeline.training.rank <run dir>`, started by `launch`.

Reads `.rank.json` (see `job`), the tokenizer, the examples and the checkpoint to resume from.
Writes metrics.jsonl, timing.jsonl, launches.jsonl and checkpoints/. A failed rank writes its error
to `.ranks/<rank>.error`. Exit codes: 0 the budget is spent; 75 asked to stop, checkpoint saved; 76
diverged; any other code is a failure.
"""

import atexit
import errno
import logging
import os
import socket
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import psutil

from data_prep.errors import SesameError
from data_prep.files import write_atomically
from data_prep.progress import console
from pipeline.training.config import TrainerConfig
from pipeline.training.exits import DIVERGED, INTERRUPTED, REPORTS, Diverged, write_end
from pipeline.training.job import Job
from pipeline.training.scratch import with_local_examples
from pipeline.training.stopping import StopRequest

if TYPE_CHECKING:
    from pipeline.training.build import Run

# Errors of the disk under the run, such as a write to the journal that fails.
DISK_ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ESTALE, errno.EROFS)


# Trains in a run's folder; returns True at the end, False if a stop was requested before.
Train = Callable[[Path, StopRequest], bool]


def this_rank() -> int:
    """Return the global rank of this process, from the environment variable RANK."""
    return int(os.environ.get("RANK", 0))


def is_srun_task() -> bool:
    """Return True if `srun` started this rank, and not `launch` or `torchrun`."""
    return "SLURM_PROCID" in os.environ and "RANK" not in os.environ


def prepare_srun_task(run_dir: Path) -> None:
    """Set torchrun's variables from SLURM's, choose gloo's interface, and redirect output.

    Output goes to `.ranks/<rank>.log`; rank 0 keeps stderr for the job's log.
    """
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
    if this_rank() != 0:
        os.dup2(log, 2)


def interface_to(address: str) -> str:
    """Return the network interface with the route to a node.

    Without it gloo tries to resolve host names that may not exist. Raises `SesameError` if no
    interface has the route's address.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))  # UDP: sends nothing, only selects the route
        own = probe.getsockname()[0]
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address == own for each in addresses):
            return str(name)
    raise SesameError(f"no network interface has the address {own}, the route to {address}")


def say(text: str) -> None:
    console.print(f"pretrain: {text}", markup=False)


def choose_accelerator(wanted: str) -> str:
    """Return cpu, cuda or mps for `trainer.accelerator`, and set DeepSpeed's variable.

    Must be called before DeepSpeed is imported, which reads the variable. Raises `SesameError` if
    the wanted accelerator is missing.
    """
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
    if chosen == "cuda":
        prepare_cuda()
    return chosen


def prepare_cuda() -> None:
    """Choose CUDA's settings for training, before its first use in this process.

    fp32 products may use TF32. The allocator grows its segments, because the sizes of unpadded
    batches vary and would fragment the memory.
    """
    import torch

    torch.set_float32_matmul_precision("high")
    os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")


def train(run_dir: Path, stop: StopRequest) -> bool:
    """Train until the budget is spent (returns True) or a stop is requested (returns False)."""
    job = Job.read(run_dir)
    accelerator = choose_accelerator(job.trainer.accelerator)

    quieten()
    import torch

    from pipeline.training.build import assemble

    torch.manual_seed(job.trainer.seed)
    job = with_local_examples(job, int(os.environ.get("LOCAL_RANK", 0)), say)
    run = assemble(job, run_dir, this_rank(), accelerator, lambda: stop.came, say)
    if run.module.finished:
        run.close()
        return True
    return fit(run, job.trainer, accelerator)


def fit(run: "Run", config: TrainerConfig, accelerator: str) -> bool:
    """Train with Lightning's loop; return False if a stop was requested before the end."""
    from pytorch_lightning import Trainer

    trainer = Trainer(
        strategy=run.engine,
        accelerator="gpu" if accelerator == "cuda" else accelerator,
        devices=config.devices,
        num_nodes=config.num_nodes,
        max_epochs=1,  # the only epoch; it ends when the loader ends or training should stop
        callbacks=run.callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    # Lightning's own signal handlers save or communicate inside the handler, which can deadlock.
    trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]
    run.watchdog.start()
    try:
        trainer.fit(run.module, run.steps)
    finally:
        run.close()
    return run.module.finished


def quieten() -> None:
    """Import Lightning and silence library warnings that users of Sesame cannot act on."""
    import pytorch_lightning  # noqa: F401 (it sets its own log levels)

    warnings.filterwarnings("ignore", module=r"pytorch_lightning|lightning_fabric|torch|deepspeed")
    for name in ("pytorch_lightning", "lightning_fabric", "DeepSpeed"):
        logging.getLogger(name).setLevel(logging.ERROR)


def main(run_dir: Path) -> int:
    """Train and return the exit code (see the module's docstring)."""
    stop = StopRequest()
    stop.listen()
    if not is_srun_task():
        return train_to_end(run_dir, stop, train)
    prepare_srun_task(run_dir)
    code = train_to_end(run_dir, stop, train)
    write_end(run_dir, this_rank(), code)
    # srun kills all tasks when one returns an error; these two codes must not trigger that.
    return 0 if code in (INTERRUPTED, DIVERGED) else code


def train_to_end(run_dir: Path, stop: StopRequest, train: Train) -> int:
    """Train and return an exit code; a `SesameError` is written to `.ranks/<rank>.error`."""
    try:
        return 0 if train(run_dir, stop) else INTERRUPTED
    except Diverged as error:
        error.write(run_dir)  # every rank writes the same content
        return DIVERGED
    except SesameError as error:
        return _report(run_dir, error)
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise
        where = error.filename or run_dir
        remedy = "check the disk; the same command goes on from the last checkpoint"
        return _report(run_dir, SesameError(f"{where}: {error.strerror}; {remedy}"))


def _report(run_dir: Path, error: SesameError) -> int:
    """Write an error for the launcher; return the exit code."""
    try:
        write_atomically(run_dir / REPORTS / f"{this_rank()}.error", str(error))
    except OSError:  # the disk is full: print it, for the launcher points to this log
        say(str(error))
    return error.exit_code


def leave(code: int) -> NoReturn:
    """Run the exit handlers and end the process without destroying native objects.

    gloo's threads may still run at this point. Destroying them aborts a process that has finished
    its work ("terminate called without an active exception", seen on a busy machine).
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(main(Path(sys.argv[1])))
