"""Compute a rank's memory of weights, gradients and optimizer state under each strategy."""

from dataclasses import dataclass

from pipeline.models.cost import FP32
from pipeline.training.config import ZERO_BUCKET


@dataclass(frozen=True)
class Memory:
    """Bytes on one device, by part."""

    weights: float
    gradients: float
    optimizer: float
    exchange: float  # communication buffers for gradients and weights
    activations: float = 0.0

    @property
    def total(self) -> float:
        states = self.weights + self.gradients + self.optimizer
        return states + self.exchange + self.activations


def model_memory(parameters: int, strategy: str, ranks: int, precision: str) -> Memory:
    """Return a rank's fp32 weights, gradients and AdamW moments, and the strategy's buffers.

    ZeRO keeps a second copy of the weights, divided over the ranks. ZeRO 3 divides the first copy
    too, but during a step it gathers the whole of a model of this size.
    """
    whole = FP32 * parameters
    part = whole / ranks
    copies = whole / 2 if precision == "bf16-mixed" else 0.0  # bf16 copies of autocast in a step
    buckets = 2.0 * FP32 * ZERO_BUCKET  # one is filled while the other is sent
    match strategy:
        case "zero1":
            return Memory(whole + part + copies, whole, 2 * part, buckets)
        case "zero2":
            return Memory(whole + part + copies, part, 2 * part, buckets)
        case "zero3":
            return Memory(2 * part + copies, part, 2 * part, buckets + whole)
        case _:  # single; ddp, whose gradients are views of the communication buffers
            return Memory(whole + copies, whole, 2 * whole, 0.0)
