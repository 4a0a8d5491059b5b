"""LAMB (You et al. 2020, algorithm 2): AdamW whose update of a matrix has the matrix's own norm."""

from typing import Any

import torch
from torch import Tensor

from pipeline.training.optimizers.whole_tensors import (
    AdamTensorOptimizer,
    Moments,
    adam_direction,
    adam_moments,
)


class Lamb(AdamTensorOptimizer):
    """For large batches: a rate that suits one layer suits all. Vectors (biases and norms) are
    updated as by AdamW, as in the authors' code."""

    def next(
        self,
        weight: Tensor,
        gradient: Tensor,
        moments: Moments,
        step: Tensor,
        group: dict[str, Any],
    ) -> tuple[Tensor, Moments]:
        new = adam_moments(gradient, moments, *group["betas"])
        direction = adam_direction(new, step, group) + group["weight_decay"] * weight
        if weight.ndim > 1:
            direction = direction * _trust(weight.norm(), direction.norm())
        return weight - group["lr"] * direction, new


def _trust(weight_norm: Tensor, direction_norm: Tensor) -> Tensor:
    """Return the ratio of the norms; 1 if either is zero."""
    is_defined = (weight_norm > 0) & (direction_norm > 0)
    return torch.where(is_defined, weight_norm / direction_norm, 1.0)
