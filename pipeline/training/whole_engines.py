"""Engines that hold all weights and all optimizer state on every rank: `single` and `ddp`."""

import math
from collections.abc import Iterator
from typing import cast

import torch
import torch.distributed as dist
from pytorch_lightning.strategies import DDPStrategy, SingleDeviceStrategy
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from pipeline.models.row_gradients import RowGradients, Rows, summed
from pipeline.training.engine import Engine, moment_names
from pipeline.training.optimizers.adagrad import Adagrad
from pipeline.training.parameter_state import ParameterState, to_host
from pipeline.training.restoring import SavedParameters


class _WholeEngine(Engine):
    """Base of `single` and `ddp`: every rank holds all weights and all optimizer state."""

    def prepare(self) -> None:
        optimizer = self.optimizers[0]
        self.set_learning_rate(0.0)
        for _, parameter in self.named_parameters():
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        self._set_updates(0)

    def update(self, clip: float) -> Tensor:
        optimizer = self.optimizers[0]
        rows = {each.weight: self._all_rows(each.take()) for each in self._row_gradients()}
        parameters = [parameter for _, parameter in self.named_parameters()]
        dense = [each.grad for each in parameters if each.grad is not None]
        norm = nn.utils.get_total_norm([*dense, *(each.values_NP for each in rows.values())])
        nn.utils.clip_grads_with_norm_(parameters, clip or math.inf, norm)
        for weight, each in rows.items():
            if clip:
                each.values_NP.mul_((clip / (norm + 1e-6)).clamp(max=1.0))
            cast(Adagrad, optimizer).rows[weight] = each
        is_bad = ~torch.isfinite(norm)
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            # The optimizer's kernel reads this flag on the device and skips the update.
            optimizer.found_inf = is_bad.float()  # type: ignore[attr-defined]
            optimizer.step()
        elif not is_bad:  # one's own optimizer: the host has to read the flag
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return norm

    def _row_gradients(self) -> list[RowGradients]:
        return list(self._kept_rows().values())

    def _kept_rows(self) -> dict[str, RowGradients]:
        assert self.lightning_module is not None
        return cast(dict[str, RowGradients], self.lightning_module.row_gradients)

    def _all_rows(self, rows: Rows) -> Rows:
        """Return the gradient of the global loss by row, from all ranks. Collective."""
        return summed(rows)

    def state(self) -> Iterator[ParameterState]:
        for name, parameter, owner in self._owned_parameters():
            if owner == self.rank:
                state = self.optimizers[0].state[parameter]
                moments = {key: to_host(state[key]) for key in moment_names(state)}
                yield ParameterState(name, to_host(parameter), moments)

    @torch.no_grad()
    def restore(self, saved: SavedParameters, updates: int) -> None:
        for name, parameter, owner in self._owned_parameters():
            self._read_on(owner, saved, name, parameter.data)
            for key in saved.moments(name):
                moment = self.optimizers[0].state[parameter][key]
                self._read_on(owner, saved, f"{key}/{name}", moment)
        self._set_updates(updates)


class SingleEngine(_WholeEngine, SingleDeviceStrategy):
    """Runs on a single rank; ignores the process group."""

    ranks = 1
    rank = 0


class ReplicatedEngine(_WholeEngine, DDPStrategy):
    """A full copy per rank, with averaged gradients (DistributedDataParallel)."""

    def _setup_model(self, model: nn.Module) -> DistributedDataParallel:
        names = [f"model.{name}" for name in self._kept_rows()]
        # DDP would wait for a dense gradient of these parameters.
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(  # type: ignore[no-untyped-call]
            model, names
        )
        return super()._setup_model(model)

    def _set_gradient_sync(self, last: bool) -> None:
        cast(DistributedDataParallel, self.model).require_backward_grad_sync = last

    def _all_rows(self, rows: Rows) -> Rows:
        # Every rank reads equally many rows: the sampled ones and one per prediction.
        parts = []
        for own in (rows.numbers_N, rows.values_NP / self.ranks):
            gathered = own.new_empty(self.ranks * len(own), *own.shape[1:])
            dist.all_gather_into_tensor(gathered, own)
            parts.append(gathered)
        return summed(Rows(*parts))
