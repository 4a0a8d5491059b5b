"""CUDA devices of fine-tunings that run in parallel: each process gets its own."""

import os
from collections.abc import Sequence

from pipeline.tasks.config import FinetuneConfig

VISIBLE = "CUDA_VISIBLE_DEVICES"


def visible_devices(configs: Sequence[FinetuneConfig]) -> list[str]:
    """Return the CUDA devices that these fine-tunings may use; empty if they use none."""
    from pipeline.tasks.device import choose_device

    if all(choose_device(config.accelerator).type != "cuda" for config in configs):
        return []
    import torch

    given = os.environ.get(VISIBLE)
    if given is not None:
        return [name for name in given.split(",") if name]
    return [str(number) for number in range(torch.cuda.device_count())]


def divide_devices(devices: Sequence[str], each: int, processes: int) -> list[str]:
    """Return the value of `VISIBLE` for every process: `each` devices, none of them shared.

    If there are too few, processes share them in turn. Without devices all values are empty.
    """
    groups = [
        ",".join(devices[start : start + each]) for start in range(0, len(devices) - each + 1, each)
    ] or [",".join(devices)]
    return [groups[number % len(groups)] for number in range(processes)]
