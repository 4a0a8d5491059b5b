"""Muon (Jordan et al. 2024): orthogonalised momentum for hidden matrices, AdamW for the rest."""

import math
from typing import Any

from torch import Tensor

from pipeline.training.optimizers.whole_tensors import (
    Moments,
    WholeTensorOptimizer,
    adam_direction,
    adam_moments,
)

# Jordan's coefficients of the quintic iteration: five turns bring singular values close to 1.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
TURNS = 5
# Liu et al. 2025 (Moonlight), 2.2: makes the size of an update that of AdamW's, so that one rate
# and one weight decay suit both kinds of parameters.
ADAMW_SIZE = 0.2


class Muon(WholeTensorOptimizer):
    """A group with `stacked` n holds hidden matrices, each n matrices stacked by rows (3 for query,
    key and value), which are orthogonalised separately. A group with 0 gets AdamW."""

    def __init__(
        self,
        params: Any,
        *,
        momentum: float,
        betas: tuple[float, float],
        eps: float,
        lr: float = 0.0,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0, "stacked": 0}
        super().__init__(params, defaults | {"momentum": momentum})

    def moments(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("momentum",) if group["stacked"] else ("exp_avg", "exp_avg_sq")

    def next(
        self,
        weight: Tensor,
        gradient: Tensor,
        moments: Moments,
        step: Tensor,
        group: dict[str, Any],
    ) -> tuple[Tensor, Moments]:
        if group["stacked"]:
            decay = group["momentum"]
            new = {"momentum": moments["momentum"] * decay + gradient}
            direction = _step_of(gradient + decay * new["momentum"], group["stacked"])
        else:
            new = adam_moments(gradient, moments, *group["betas"])
            direction = adam_direction(new, step, group)
        return weight - group["lr"] * (direction + group["weight_decay"] * weight), new


def _step_of(momentum: Tensor, stacked: int) -> Tensor:
    matrices = momentum.view(stacked, -1, momentum.shape[1])
    size = ADAMW_SIZE * math.sqrt(max(matrices.shape[1:]))
    return size * orthogonalised(matrices).flatten(0, 1)


def orthogonalised(matrices: Tensor) -> Tensor:
    """Return matrices [B, R, C] with their singular vectors, and singular values close to 1.

    By Newton-Schulz iterations, in bf16 on CUDA, which they tolerate, otherwise in fp32.
    """
    x: Tensor = matrices.bfloat16() if matrices.is_cuda else matrices
    is_tall = x.shape[1] > x.shape[2]
    x = x.mT if is_tall else x
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)  # singular values of at most 1
    a, b, c = COEFFICIENTS
    for _ in range(TURNS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    x = x.mT if is_tall else x
    return x.to(matrices.dtype)
