"""StableAdamW (Wortsman et al. 2023, algorithm 2): AdamW that lowers a tensor's rate in a spike."""

from typing import Any

from torch import Tensor

from pipeline.training.optimizers.whole_tensors import (
    AdamTensorOptimizer,
    Moments,
    adam_moments,
)


class StableAdamW(AdamTensorOptimizer):
    """AdamW with Adafactor's update clipping: a tensor's rate is divided by the root mean square of
    gradient over expected gradient, where that exceeds 1. It replaces clipping by norm."""

    def next(
        self,
        weight: Tensor,
        gradient: Tensor,
        moments: Moments,
        step: Tensor,
        group: dict[str, Any],
    ) -> tuple[Tensor, Moments]:
        # Betas that grow from 0 make the moments means of the gradients seen so far, so that they
        # need no correction afterwards.
        beta1, beta2 = (
            beta * (1 - beta ** (step - 1)) / (1 - beta**step) for beta in group["betas"]
        )
        new, eps = adam_moments(gradient, moments, beta1, beta2), group["eps"]
        expected = new["exp_avg_sq"].clamp(min=eps**2)
        surprise = (gradient * gradient / expected).mean().sqrt()
        lr = group["lr"] / surprise.clamp(min=1.0)
        direction = new["exp_avg"] / (new["exp_avg_sq"].sqrt() + eps)
        return weight - lr * (direction + group["weight_decay"] * weight), new
