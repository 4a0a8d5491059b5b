"""Copies host tensors to a device without making the host wait."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def send(tensor: Tensor | NDArray[np.generic], device: torch.device | str) -> Tensor:
    """Return a tensor or array of the host as a tensor on `device`.

    A copy to CUDA starts from pinned memory, because only such a copy is asynchronous.
    """
    host = torch.from_numpy(tensor) if isinstance(tensor, np.ndarray) else tensor
    device = torch.device(device)
    if device.type == "cuda":
        host = _pinned(host)
    return host.to(device, non_blocking=True)


def _pinned(host: Tensor) -> Tensor:
    return host.pin_memory()
