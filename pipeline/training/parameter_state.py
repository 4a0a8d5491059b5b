"""The state of one parameter in a checkpoint, and the rank that saves it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from torch import Tensor


@dataclass(frozen=True)
class ParameterState:
    """One unpartitioned parameter and its optimizer moments: copies in fp32, on the CPU."""

    name: str
    weight: Tensor
    moments: dict[str, Tensor]  # by the optimizer's names


def owners(sizes: Sequence[int], ranks: int) -> list[int]:
    """Return the rank that saves each parameter, given their sizes in elements.

    Every rank gets successive parameters, and at most an equal share and one parameter more.
    """
    total = max(sum(sizes), 1)
    return [start * ranks // total for start in accumulate(sizes, initial=0)][: len(sizes)]


def to_host(tensor: Tensor) -> Tensor:
    """Return a contiguous copy on the CPU. Later changes of `tensor` do not reach it."""
    return tensor.detach().to("cpu", copy=True).contiguous()
