"""The interface of a training objective; each family has its own.

An objective counts the predictions of a batch, calls the network, and turns summed losses into the
loss to differentiate. It also names the metrics.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pipeline.models.sums import Sums

Forward = Callable[..., Any]  # the network, inside the engine's wrapper (DDP, DeepSpeed) if any


class Objective(ABC):
    """Computes the loss on one rank. Per step: `begin`, then `losses` and `mean` per micro-batch,
    then `end`. No method communicates with other ranks."""

    carried: Tensor | None = None  # state kept between steps; saved in checkpoints

    def begin(self, step: int, device: torch.device) -> None:
        """Prepare for optimizer step number `step`."""
        del step, device

    @abstractmethod
    def losses(self, forward: Forward, batch: Any) -> NamedTuple:
        """Run the network on a batch that is on the device; return its summed losses.

        The result's fields are scalar tensors. Their names are those in `Sums`.
        """

    @abstractmethod
    def count(self, batch: Any) -> Sums:
        """Count the predictions and tokens of a batch, which is still on the host."""

    @abstractmethod
    def mean(self, losses: Any, asked: Sums) -> Tensor:
        """Divide a micro-batch's summed losses by the counts of the global batch, `asked`.

        Added over all micro-batches and ranks, the results are the loss of the global batch.
        """

    @abstractmethod
    def loss(self, sums: Sums) -> float:
        """Return the training loss of rows with these sums; `mean` without gradients.

        Uses arithmetic only, so that summed losses may also be tensors on a device.
        """

    @abstractmethod
    def metrics(self, sums: Sums) -> dict[str, float | None]:
        """Return `loss` and the family's other metrics by name; None without a prediction."""

    def end(self, accepted: bool) -> None:
        """Finish an optimizer step. `accepted` is False if it was dropped."""
        del accepted

    def restore(self, carried: Tensor) -> None:
        """Load the carried state of this rank's streams from a checkpoint."""
        raise AssertionError("nothing is carried")

    def for_evaluation(self, device: torch.device) -> "Objective":
        """Return an objective for held-out batches that does not affect training."""
        del device
        return self


def seed_of(*parts: int) -> int:
    """Hash counters to a seed for torch. Checkpoints then need not save a generator's state."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
