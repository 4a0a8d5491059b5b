"""How a run updates its weights: the optimizer, its learning rate and the limit of gradients."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import nn

from pipeline.training.config import OptimConfig
from pipeline.training.optimizers.make import make_optimizer
from pipeline.training.schedule import learning_rate


class Updates(Protocol):
    """The optimizer of a network and its settings per step."""

    @property
    def clip(self) -> float:
        """The largest gradient norm; 0: no limit."""

    @property
    def refuses_spikes(self) -> bool:
        """True if a step with a loss far above recent losses is dropped; see `guard`."""

    def make_optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        """Return the optimizer. A group's `rate`, if it has one, multiplies the learning rate."""

    def learning_rate(self, step: int, spent: float) -> float:
        """Return the learning rate of step `step`; `spent` is the share of the budget, 0 to 1."""


class PretrainingUpdates:
    """The updates that the section `optim` describes.

    stacked  see `optimizers.make.Stacked`
    """

    refuses_spikes = True

    def __init__(self, optim: OptimConfig, stacked: Callable[[str], int] = lambda name: 0) -> None:
        self._optim, self._stacked = optim, stacked
        self.clip = optim.clip

    def make_optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        return make_optimizer(network, self._optim, self._stacked)

    def learning_rate(self, step: int, spent: float) -> float:
        return learning_rate(self._optim, spent)
