"""Adagrad with decoupled weight decay, constructed so that DeepSpeed can partition it."""

from typing import Any

import torch
from torch import Tensor
from torch.optim.adagrad import adagrad

from pipeline.models.row_gradients import Rows


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
        # Gradients by row, instead of `grad`, for the next step; see models.row_gradients.
        self.rows: dict[Tensor, Rows] = {}

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter in self.rows:
                    self._update_rows(parameter, self.rows.pop(parameter), group)
                elif parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)

    def _update_rows(self, parameter: Tensor, rows: Rows, group: dict[str, Any]) -> None:
        """Update only the rows that have a gradient. The others would not change either."""
        assert not group["weight_decay"], "weight decay changes every row"
        state, values_NP = self._state(parameter), rows.values_NP
        updated: Tensor | float = 1.0
        if self.found_inf is not None:  # a gradient of zero changes neither weight nor sum
            values_NP = values_NP.masked_fill(self.found_inf.bool(), 0.0)
            if parameter.is_cpu:  # elsewhere the count, which is not used, includes skipped steps
                updated = 1 - self.found_inf
        state["step"] += updated
        # Each number occurs once with a gradient, and else with zeros, so the order of the
        # additions does not matter.
        state["sum"].index_add_(0, rows.numbers_N, values_NP * values_NP)
        roots_NP = state["sum"].index_select(0, rows.numbers_N).sqrt_().add_(group["eps"])
        parameter.index_add_(0, rows.numbers_N, values_NP / roots_NP, alpha=-group["lr"])

    def _update(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self._state(parameter)
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

    def _state(self, parameter: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["sum"] = torch.full_like(parameter, self._initial_accumulator)
        return state
