"""Optimizers whose state every engine can divide, save and take over: AdamW and Adagrad."""

from collections.abc import Callable
from typing import Any

import torch
from pytorch_lightning import LightningModule

from pipeline.training.config import OptimConfig


class Adagrad(torch.optim.Adagrad):
    """Adagrad that makes its state when a parameter is first updated.

    torch's own makes it when it is constructed, for the parameters it is given; DeepSpeed then puts
    partitions in their place.
    """

    def __init__(self, params: Any, initial_accumulator: float, **settings: Any) -> None:
        super().__init__(params, **settings)
        self._initial = initial_accumulator
        self.state.clear()

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and parameter not in self.state:
                    self.state[parameter] = {
                        "step": torch.tensor(0.0),
                        "sum": torch.full_like(parameter, self._initial),
                    }
        loss: float | None = super().step(closure)
        return loss


# What an optimizer remembers of a parameter beside the number of updates.
MOMENTS: dict[type[torch.optim.Optimizer], tuple[str, ...]] = {
    torch.optim.AdamW: ("exp_avg", "exp_avg_sq"),
    Adagrad: ("sum",),
}


def make_optimizer(module: LightningModule, config: OptimConfig) -> torch.optim.Optimizer:
    """The optimizer of a module; its rate is set before every step."""
    groups = decay_groups(module, config.weight_decay)
    # A rate of zero, because engines create their state with one step.
    if config.kind == "adagrad":
        return Adagrad(groups, config.initial_accumulator, lr=0.0, eps=config.eps)
    betas = (config.beta1, config.beta2)
    return torch.optim.AdamW(groups, lr=0.0, betas=betas, eps=config.eps, fused=True)


def decay_groups(module: LightningModule, weight_decay: float) -> list[dict[str, Any]]:
    """Parameters for the optimizer: matrices decay, biases and norms (vectors) do not."""
    matrices = [p for p in module.parameters() if p.requires_grad and p.ndim > 1]
    vectors = [p for p in module.parameters() if p.requires_grad and p.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]
