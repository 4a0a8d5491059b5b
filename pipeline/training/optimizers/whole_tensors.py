"""Base of optimizers whose update of a parameter needs the whole tensor, such as its norm."""

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

Moments = dict[str, Tensor]


class WholeTensorOptimizer(torch.optim.Optimizer):
    """Applies one pure function, `next`, to every parameter; keeps its moments and step count.

    All arithmetic stays on the parameter's device: neither a norm nor `found_inf` is read.
    """

    found_inf: Tensor | None = None
    _step_supports_amp_scaling = True  # torch's name for an optimizer that reads `found_inf`

    @abstractmethod
    def moments(self, group: dict[str, Any]) -> tuple[str, ...]:
        """Return the names of the moments of a group's parameters; they begin as zeros."""

    @abstractmethod
    def next(
        self,
        weight: Tensor,
        gradient: Tensor,
        moments: Moments,
        step: Tensor,
        group: dict[str, Any],
    ) -> tuple[Tensor, Moments]:
        """Return weight and moments after update number `step` (a scalar, from 1 on)."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient, unless `found_inf` is 1."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)

    def _update(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state, names = self.state[parameter], self.moments(group)
        if not state:
            state["step"] = torch.zeros((), device=parameter.device)
            state.update({name: torch.zeros_like(parameter) for name in names})
        old = {name: state[name] for name in names}
        step = state["step"] + 1
        weight, moments = self.next(parameter, gradient, old, step, group)
        for target, new in [
            (parameter, weight),
            (state["step"], step),
            *((old[name], moments[name]) for name in names),
        ]:
            if self.found_inf is not None:
                new = torch.where(self.found_inf.bool(), target, new)
            target.copy_(new)


class AdamTensorOptimizer(WholeTensorOptimizer):
    """Base of variants of Adam: means of the gradient and of its square as moments."""

    def __init__(
        self, params: Any, *, betas: tuple[float, float], eps: float, lr: float = 0.0
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    def moments(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq")


def adam_moments(
    gradient: Tensor, moments: Moments, beta1: float | Tensor, beta2: float | Tensor
) -> Moments:
    """Return the moving means of the gradient and of its square."""
    return {
        "exp_avg": moments["exp_avg"] * beta1 + gradient * (1 - beta1),
        "exp_avg_sq": moments["exp_avg_sq"] * beta2 + gradient * gradient * (1 - beta2),
    }


def adam_direction(moments: Moments, step: Tensor, group: dict[str, Any]) -> Tensor:
    """Return Adam's update of unit rate: corrected first moment over root of corrected second."""
    beta1, beta2 = group["betas"]
    first = moments["exp_avg"] / (1 - beta1**step)
    second = moments["exp_avg_sq"] / (1 - beta2**step)
    direction: Tensor = first / (second.sqrt() + group["eps"])
    return direction
