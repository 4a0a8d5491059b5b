"""The device of a fine-tuning and of what is computed with its model."""

import torch

from data_prep.errors import UsageError


def choose_device(accelerator: str) -> torch.device:
    """Return the device for finetune.accelerator; `auto` prefers cuda, then mps, then cpu."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if accelerator == "auto":
        return torch.device(next((name for name, usable in there.items() if usable), "cpu"))
    if not there.get(accelerator, True):
        raise UsageError(
            f"finetune.accelerator={accelerator}: not available on this machine; use auto or cpu"
        )
    return torch.device(accelerator)
