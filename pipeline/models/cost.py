"""The cost of training a model by arithmetic: parameters, FLOPs and memory. Without torch."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from pipeline.models.sums import Sums

FP32 = 4  # bytes


@dataclass(frozen=True)
class Pass:
    """One forward pass of a rank: its size and how it is computed."""

    tokens: float
    mean_length: float  # mean length of a token's example
    predictions: float
    precision: str
    on_host: bool = False  # on a CPU
    checkpointing: bool = False


@dataclass(frozen=True)
class RowCost:
    """Training cost of a phase's rows."""

    positions: int  # per row, padding included
    flops: Callable[[Sums], float]  # FLOPs of a training step on a batch with these sums


class Cost(ABC):
    """The cost of one model with one vocabulary."""

    @abstractmethod
    def parameters(self) -> int:
        """Return the number of weights; tied ones count once."""

    @abstractmethod
    def flops_per_token(self, mean_length: float, predicted_share: float) -> float:
        """Return the FLOPs that are actually computed per token of training.

        mean_length      mean number of tokens per example
        predicted_share  predictions per token

        A multiplication with an addition counts as two FLOPs.
        """

    @abstractmethod
    def activation_bytes(self, one: Pass) -> float:
        """Return the bytes kept from the forward for the backward pass, including the logits."""

    @abstractmethod
    def largest_product(self) -> tuple[int, int]:
        """Return (inner, outer) of the matrix product that dominates a training step."""
