"""Adagrad with decoupled weight decay, constructed so that DeepSpeed can partition it."""

from typing import Any

import torch
from torch import Tensor
from torch.optim.adagrad import adagrad


class Adagrad(torch.optim.Optimizer):
    """Adagrad (Duchi et al. 2011): each weight's rate is divided by the root of its sum of squared
    gradients. Weight decay is decoupled from the gradient, as in AdamW.

    This is not torch's class. That one creates its state in the constructor, before DeepSpeed
    replaces the parameters. DeepSpeed therefore constructs it again, with one parameter group and
    default settings.

    `found_inf`, as in torch's fused optimizers, is a scalar on the device: 1 skips the update.
    """

    found_inf: Tensor | None = None
    _step_supports_amp_scaling = True  # torch's name for an optimizer that reads `found_inf`

    def __init__(
        self, params: Any, *, initial_accumulator: float, eps: float, lr: float = 0.0
    ) -> None:
        super().__init__(params, {"lr": lr, "eps": eps, "weight_decay": 0.0})
        self._initial_accumulator = initial_accumulator

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)

    def _update(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["sum"] = torch.full_like(parameter, self._initial_accumulator)
        decay, found_inf = group["lr"] * group["weight_decay"], self.found_inf
        if decay:
            parameter.mul_(1 - decay * (1.0 if found_inf is None else 1 - found_inf))
        if found_inf is not None and not parameter.is_cpu:
            # A gradient of zero changes neither weight nor sum. Only the fused kernel, which CUDA
            # lacks, reads the flag itself.
            gradient = gradient.masked_fill(found_inf.bool(), 0.0)
            found_inf = None
        # Fused on CPUs: one pass over memory. Most rows of a large vocabulary have no gradient in a
        # step, but every pass reads them.
        adagrad(
            [parameter],
            [gradient],
            [state["sum"]],
            [state["step"]],
            fused=parameter.is_cpu,
            found_inf=found_inf,
            lr=group["lr"],
            weight_decay=0.0,
            lr_decay=0.0,
            eps=group["eps"],
            maximize=False,
        )
