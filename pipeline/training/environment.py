"""Environment variables of the ranks: torchrun's names, threads, and settings for gloo and bf16."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from data_prep.errors import UsageError
from data_prep.work_units import usable_cores
from pipeline.training.config import TrainerConfig

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


def shared_variables(trainer: TrainerConfig) -> dict[str, str]:
    """Return the variables that all ranks of all nodes share."""
    threads = trainer.threads or max(1, usable_cores() // trainer.devices)
    sources = str(Path(__file__).parents[2])
    path = os.environ.get("PYTHONPATH")
    variables = {
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "PYTHONPATH": f"{sources}:{path}" if path else sources,
    }
    if trainer.precision == "bf16-mixed" and trainer.accelerator in ("auto", "cpu"):
        variables |= _working_bf16(trainer.accelerator)
    return variables


def local_variables(trainer: TrainerConfig) -> dict[str, str]:
    """Return the variables of ranks that are all on this machine."""
    variables = shared_variables(trainer) | {
        "WORLD_SIZE": str(trainer.devices),
        "LOCAL_WORLD_SIZE": str(trainer.devices),
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
    }
    if sys.platform == "linux":
        variables["GLOO_SOCKET_IFNAME"] = "lo"  # the machine's host name may not resolve
    return variables


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


def free_port() -> int:
    """Return a port that is free on this machine now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
