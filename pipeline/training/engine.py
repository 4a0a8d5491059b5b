"""The interface of an engine: what the training step and checkpoints need of a strategy.

An engine is a Lightning strategy with forward and backward of a micro-batch, one update, and the
training state as plain fp32 tensors by parameter name, regardless of which rank holds which part.
Mixed precision is autocast in the module and equal for all engines: the strategy changes speed and
memory, never the result.
"""

from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Any, cast

import torch
import torch.distributed as dist
from pytorch_lightning.strategies import Strategy
from torch import Tensor, nn

from data_prep.errors import SesameError
from pipeline.training.host_group import HostGroup
from pipeline.training.parameter_state import ParameterState, owners
from pipeline.training.restoring import SavedParameters


def moment_names(state: dict[str, Any]) -> list[str]:
    """Return the names of the tensors in an optimizer's state of a parameter, without its step."""
    odd = [key for key, value in state.items() if not torch.is_tensor(value) and key != "step"]
    if odd:
        raise SesameError(
            f"optim.path: the optimizer keeps {odd[0]} of type {type(state[odd[0]]).__name__} in "
            "its state; checkpoints hold tensors only"
        )
    return [key for key in state if key != "step"]


class Engine(Strategy):
    """A Lightning strategy with the operations that the training step and checkpoints need.

    `prepare`, `update`, `state` and `restore` are collective: every rank must call them.
    """

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        # Lightning would run the whole step, with several backward passes, inside the wrapper's
        # forward. The wrapper (DDP, DeepSpeed) expects one forward and one backward at a time.
        assert self.lightning_module is not None
        return self.lightning_module.training_step(*args, **kwargs)

    @property
    def ranks(self) -> int:
        return dist.get_world_size() if dist.is_initialized() else 1

    @property
    def rank(self) -> int:
        return dist.get_rank() if dist.is_initialized() else 0

    def all_reduce_sum(self, values: list[float]) -> list[float]:
        """Return each value summed over all ranks. Collective: every rank must call it.

        Exchanges values of the host, so that no device has to synchronise.
        """
        return self._host_group.sum(values)

    def gather_on_host(self, value: Any) -> list[Any]:
        """Return the values of all ranks, indexed by rank. Collective: every rank must call it."""
        return self._host_group.gather(value)

    @cached_property
    def _host_group(self) -> HostGroup:
        return HostGroup.shared(self.ranks)

    def make_host_group(self) -> HostGroup:
        """Return a group for the use of another thread. Collective: every rank must call it."""
        return HostGroup.make(self.ranks)

    def all_reduce_sum_(self, values: Tensor) -> Tensor:
        """Sum a tensor on the device over all ranks, in place. Collective."""
        if self.ranks > 1:
            dist.all_reduce(values)
        return values

    def read(self, values: Tensor) -> list[float]:
        """Copy values from the device to the host; waits for all work on the device."""
        return cast(list[float], values.tolist())

    def forward(self, last: bool, *inputs: Any) -> Any:
        """Run the network on a micro-batch; return its output.

        `last` marks the step's last micro-batch: ranks exchange gradients in its backward pass.
        """
        assert self.model is not None
        self._set_gradient_sync(last)
        return self.model(*inputs)

    def accumulate_gradients(self, loss: Tensor) -> None:
        """Run backward and add to the step's gradients. The global loss is the sum of `loss` over
        ranks."""
        # Wrappers average gradients over ranks; multiplying by the ranks makes it a sum.
        assert self.lightning_module is not None
        self.lightning_module.manual_backward(loss * self.ranks)

    def set_learning_rate(self, lr: float) -> None:
        """Set the learning rate of every group, times its `rate` if it has one."""
        for group in self.optimizers[0].param_groups:
            group["lr"] = lr * group.get("rate", 1.0)

    def named_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """Return the network's parameters with their names, in module order."""
        assert self.lightning_module is not None
        return list(cast(nn.Module, self.lightning_module.model).named_parameters())

    def _set_gradient_sync(self, last: bool) -> None:
        """Tell the wrapper whether ranks exchange gradients in the next backward pass."""

    @abstractmethod
    def prepare(self) -> None:
        """Create the optimizer state without changing a weight."""

    @abstractmethod
    def update(self, clip: float) -> Tensor:
        """Clip the gradient to norm `clip` (0: no clipping), update the weights, clear gradients.

        Returns the norm before clipping, on the device. If it is not finite, no weight changes.
        """

    @abstractmethod
    def state(self) -> Iterator[ParameterState]:
        """Yield copies of the parameters that this rank saves. Every rank must iterate to the end.

        Beside its own copies a rank holds at most one unpartitioned parameter at a time.
        """

    @abstractmethod
    def restore(self, saved: SavedParameters, updates: int) -> None:
        """Load saved weights and moments, in place. `updates` is the optimizer's step count.

        A rank reads only a share of the files: what other ranks hold too, one of them reads.
        """

    def _owned_parameters(self) -> Iterator[tuple[str, nn.Parameter, int]]:
        """Yield each parameter with the rank that saves it, and that reads what all ranks hold."""
        assert self.lightning_module is not None
        shapes = cast(dict[str, torch.Size], self.lightning_module.shapes)
        saved_by = owners([shape.numel() for shape in shapes.values()], self.ranks)
        for (name, parameter), owner in zip(self.named_parameters(), saved_by, strict=True):
            yield name, parameter, owner

    def _read_on(self, owner: int, saved: SavedParameters, key: str, target: Tensor) -> None:
        """Read a tensor on one rank into `target`, and send it to all others. Collective."""
        if self.rank == owner:
            target.copy_(saved.whole(key))
        if self.ranks > 1:
            dist.broadcast(target, owner)

    def optimizer_bytes(self) -> int:
        """Return the size of the optimizer state on this rank."""
        return sum(
            part.numel() * part.element_size()
            for state in self._inner_optimizer().state.values()
            for part in state.values()
            if torch.is_tensor(part)
        )

    def _inner_optimizer(self) -> torch.optim.Optimizer:
        return self.optimizers[0]

    def _set_updates(self, updates: int) -> None:
        for state in self._inner_optimizer().state.values():
            if torch.is_tensor(state.get("step")):
                state["step"].fill_(updates)
            elif "step" in state:
                state["step"] = updates
