"""Looks at the ranks of a rehearsal (`Job.stop_at`): packages, exchange, state, checkpoints.

Rank 0 writes `.ranks/probe.json`, an object of the fields of `Probed`, below the run's folder.
"""

import json
import os
import platform
import socket
import time
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer

from data_prep.errors import SesameError
from data_prep.files import write_atomically
from pipeline.training.engine import Engine
from pipeline.training.exits import REPORTS
from pipeline.training.restoring import SavedParameters
from pipeline.training.saving import Saver
from pipeline.training.train_step import TrainingModule

FILE = "probe.json"
PACKAGES = ("sesame-encoders", "torch", "pytorch-lightning", "deepspeed", "numpy", "safetensors")
EXCHANGED = 4 << 20  # fp32 numbers of the exchange that is timed: 16 MB


@dataclass
class Probed:
    """What was seen of a launch. The page of a rehearsal is made from it."""

    ranks: list[dict[str, Any]] = field(default_factory=list)  # see `about_rank`; by rank
    exchange_seconds: float = 0.0  # of one all-reduce of 16 MB; 0 for a single rank
    compared_tensors: int = 0  # tensors of rank 0's share, read back equal to those saved
    checkpoints: list[dict[str, float]] = field(default_factory=list)  # see `saving.Spent`

    @classmethod
    def read(cls, run_dir: Path) -> "Probed | None":
        """Read what rank 0 wrote; None if it did not come that far."""
        path = run_dir / REPORTS / FILE
        return cls(**json.loads(path.read_text())) if path.exists() else None


class Probe(Callback):
    """Probes the ranks before the first step, and writes its findings then and at the end.

    Raises `SesameError` on a rank whose state differs from the checkpoint it was restored from.
    """

    def __init__(self, run_dir: Path, checkpoint: Path | None, saver: Saver) -> None:
        self._run_dir, self._checkpoint, self._saver = run_dir, checkpoint, saver
        self._probed = Probed()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, TrainingModule)
        engine = pl_module.engine
        self._probed.ranks = engine.make_host_group().gather(about_rank(pl_module.device))
        self._probed.exchange_seconds = exchange_seconds(engine, pl_module.device)
        if self._checkpoint is not None:
            saved = SavedParameters(self._checkpoint, pl_module.shapes)
            self._probed.compared_tensors = compare(engine, saved, self._checkpoint)
        self._write(engine)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, TrainingModule)
        self._probed.checkpoints = [asdict(spent) for spent in self._saver.spent]
        self._write(pl_module.engine)

    def _write(self, engine: Engine) -> None:
        if engine.rank == 0:
            path = self._run_dir / REPORTS / FILE
            write_atomically(path, json.dumps(asdict(self._probed)))


def about_rank(device: torch.device) -> dict[str, Any]:
    """Return a rank's host, device and package versions."""
    name = platform.processor() or platform.machine()
    memory: int | None = None
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
        memory = torch.cuda.get_device_properties(device).total_memory
    return {
        "host": socket.gethostname(),
        "accelerator": device.type,
        "device": name,
        "memory": memory,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "python": platform.python_version(),
        "packages": {package: _version(package) for package in PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def exchange_seconds(engine: Engine, device: torch.device) -> float:
    """Return the seconds of one all-reduce on the device, after one to warm up. Collective.

    Raises `SesameError` if the sum is wrong.
    """
    if engine.ranks == 1:
        return 0.0
    numbers = torch.ones(EXCHANGED, device=device)
    engine.all_reduce_sum_(numbers)
    numbers.fill_(1.0)
    float(numbers[0])  # CUDA runs asynchronously, so synchronise before reading the clock
    started = time.monotonic()
    engine.all_reduce_sum_(numbers)
    total = float(numbers.sum())
    seconds = time.monotonic() - started
    if total != EXCHANGED * engine.ranks:
        raise SesameError(
            f"an all-reduce of ones over {engine.ranks} ranks gave {total:g} instead of "
            f"{EXCHANGED * engine.ranks}; check the network, or try NCCL_P2P_DISABLE=1"
        )
    return seconds


def compare(engine: Engine, saved: SavedParameters, checkpoint: Path) -> int:
    """Compare this rank's share of the state with the checkpoint, bit by bit; return its tensors.

    Collective: every rank must call it. Raises `SesameError` at the first difference.
    """
    compared = 0
    for parameter in engine.state():
        found = {parameter.name: parameter.weight}
        found |= {f"{key}/{parameter.name}": moment for key, moment in parameter.moments.items()}
        for key, tensor in found.items():
            if not torch.equal(tensor, saved.whole(key)):
                raise SesameError(
                    f"{checkpoint}: {key} differs from the checkpoint right after it was restored"
                )
        compared += len(found)
    return compared
