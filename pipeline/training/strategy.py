"""How ranks share the work: one rank, copies (DDP), or DeepSpeed's ZeRO 1 to 3, on CPU and CUDA.

All three are Lightning strategies with one small interface besides, `Engine`: forward and backward
of a micro-batch, one update, and the whole training state as plain fp32 tensors by parameter name,
whatever rank holds which part. Mixed precision is autocast in the module, the same for all, so that
the strategy shapes speed and memory but never the result.
"""

import argparse
import importlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from pytorch_lightning.plugins.precision import DeepSpeedPrecision
from pytorch_lightning.strategies import (
    DDPStrategy,
    DeepSpeedStrategy,
    SingleDeviceStrategy,
    Strategy,
)
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from data_prep.errors import SesameError
from pipeline.training.config import ZERO_BUCKET
from pipeline.training.optimizer import MOMENTS


@dataclass(frozen=True)
class ParameterState:
    """One parameter and its optimizer moments, whole, in fp32, on the CPU."""

    name: str
    weight: Tensor
    moments: dict[str, Tensor]  # by the optimizer's own names, see `optimizer.MOMENTS`


class Engine(Strategy):
    """What training needs beyond Lightning; the three classes below complete it."""

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        # Lightning would run the whole step, several backwards included, inside the wrapper's
        # forward; the wrapper (DDP, DeepSpeed) expects one forward and one backward at a time.
        assert self.lightning_module is not None
        return self.lightning_module.training_step(*args, **kwargs)

    @property
    def ranks(self) -> int:
        return dist.get_world_size() if dist.is_initialized() else 1

    @property
    def rank(self) -> int:
        return dist.get_rank() if dist.is_initialized() else 0

    def all_reduce_sum(self, values: list[float]) -> list[float]:
        """Each value summed over all ranks."""
        if self.ranks == 1:
            return values
        total = torch.tensor(values, dtype=torch.float64, device=self.root_device)
        dist.all_reduce(total)
        return cast(list[float], total.tolist())

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, by rank, on every rank."""
        if self.ranks == 1:
            return [value]
        values: list[Any] = [None] * self.ranks
        dist.all_gather_object(values, value)
        return values

    def forward(self, last: bool, *inputs: Any) -> Any:
        """The network's answer to a micro-batch; gradients are exchanged after the `last` one."""
        assert self.model is not None
        self._set_gradient_sync(last)
        return self.model(*inputs)

    def accumulate_gradients(self, loss: Tensor) -> None:
        """Add the loss's gradients to those of the step; the loss is this rank's share of a sum."""
        # Wrappers average over ranks; the global batch's loss is a sum of the ranks' shares.
        assert self.lightning_module is not None
        self.lightning_module.manual_backward(loss * self.ranks)

    def set_learning_rate(self, lr: float) -> None:
        for group in self.optimizers[0].param_groups:
            group["lr"] = lr

    def named_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """The network's parameters by their own names, in order."""
        assert self.lightning_module is not None
        return list(cast(nn.Module, self.lightning_module.model).named_parameters())

    def _set_gradient_sync(self, last: bool) -> None:
        """Tell the wrapper whether gradients are to be exchanged after the next backward."""

    def prepare(self) -> None:
        """Create the optimizer state, which its first step would, without changing a weight."""
        raise AssertionError("each strategy has its own")

    def update(self, clip: float) -> float:
        """Take the optimizer step unless the gradient is not finite; returns the gradient norm."""
        raise AssertionError("each strategy has its own")

    def state(self) -> Iterator[ParameterState]:
        """Every parameter's state; all ranks must go through it together."""
        raise AssertionError("each strategy has its own")

    def restore(self, states: Iterator[ParameterState], updates: int) -> None:
        """Take over a saved state and the number of updates that led to it."""
        raise AssertionError("each strategy has its own")

    def optimizer_bytes(self) -> int:
        """What the optimizer state occupies on this rank."""
        return sum(
            part.numel() * part.element_size()
            for state in self._inner_optimizer().state.values()
            for part in state.values()
            if torch.is_tensor(part)
        )

    def _inner_optimizer(self) -> torch.optim.Optimizer:
        return self.optimizers[0]

    def _moments(self) -> tuple[str, ...]:
        return MOMENTS[type(self._inner_optimizer())]

    def _set_updates(self, updates: int) -> None:
        for state in self._inner_optimizer().state.values():
            state["step"].fill_(updates)


class _WholeEngine(Engine):
    """Every rank holds everything: `single` and `ddp`."""

    def prepare(self) -> None:
        optimizer = self.optimizers[0]
        self.set_learning_rate(0.0)
        for _, parameter in self.named_parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        self._set_updates(0)

    def update(self, clip: float) -> float:
        parameters = [parameter for _, parameter in self.named_parameters()]
        norm = float(nn.utils.clip_grad_norm_(parameters, clip or math.inf))
        optimizer = self.optimizers[0]
        if math.isfinite(norm):
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return norm

    def state(self) -> Iterator[ParameterState]:
        for name, parameter in self.named_parameters():
            state = self.optimizers[0].state[parameter]
            moments = {key: state[key].cpu() for key in self._moments()}
            yield ParameterState(name, parameter.detach().cpu(), moments)

    @torch.no_grad()
    def restore(self, states: Iterator[ParameterState], updates: int) -> None:
        parameters = dict(self.named_parameters())
        for saved in states:
            parameter = parameters[saved.name]
            parameter.copy_(saved.weight)
            for key, moment in saved.moments.items():
                self.optimizers[0].state[parameter][key].copy_(moment)
        self._set_updates(updates)


class SingleEngine(_WholeEngine, SingleDeviceStrategy):
    """One rank, whoever else there may be."""

    ranks = 1
    rank = 0


class ReplicatedEngine(_WholeEngine, DDPStrategy):
    """Copies on every rank, gradients averaged (DistributedDataParallel)."""

    def _set_gradient_sync(self, last: bool) -> None:
        cast(DistributedDataParallel, self.model).require_backward_grad_sync = last


class _UntouchedInput(DeepSpeedPrecision):
    def convert_input(self, data: Any) -> Any:
        return data  # there are only integers in a batch


def _no_operation() -> None:
    """What DeepSpeed finds where an optional kernel cannot be built."""


class ShardedEngine(Engine, DeepSpeedStrategy):
    """DeepSpeed's ZeRO: optimizer state (1), gradients (2) and weights (3) divided over ranks."""

    def __init__(self, stage: int, clip: float, overlap: bool, **kwargs: Any) -> None:
        self.stage = stage
        zero: dict[str, Any] = {
            "stage": stage,
            "overlap_comm": overlap,
            "contiguous_gradients": True,
            "reduce_scatter": True,
            "reduce_bucket_size": ZERO_BUCKET,
        }
        super().__init__(
            config={
                "zero_optimization": zero,
                "zero_allow_untested_optimizer": True,
                "gradient_clipping": clip,
                "train_micro_batch_size_per_gpu": 1,
            },
            precision_plugin=_UntouchedInput("32-true"),
            **kwargs,
        )

    def setup_environment(self) -> None:
        # DeepSpeedStrategy's own refuses CPUs; DeepSpeed itself does not.
        DDPStrategy.setup_environment(self)

    def setup_distributed(self) -> None:
        # On CPUs DeepSpeed compiles a kernel here that only its inference uses: minutes, and a
        # compiler. (The package's attribute of this name is torch itself, hence import_module.)
        backend: Any = importlib.import_module("deepspeed.comm.torch")
        backend.build_shm_op = _no_operation
        self.set_world_ranks()
        self._init_deepspeed_distributed()

    def _setup_model_and_optimizer(
        self, model: nn.Module, optimizer: Any, lr_scheduler: Any = None
    ) -> tuple[Any, Any]:
        import deepspeed

        engine, zero, _, _ = deepspeed.initialize(
            # Lightning passes the device's index, which a CPU does not have.
            args=argparse.Namespace(device_rank=self.local_rank),
            config=self.config,
            model=model,
            model_parameters=[p for p in model.parameters() if p.requires_grad],
            optimizer=optimizer,
            dist_init_required=False,
        )
        return engine, zero

    def _set_gradient_sync(self, last: bool) -> None:
        self.deepspeed_engine.set_gradient_accumulation_boundary(last)

    @property
    def _zero(self) -> Any:
        return self.deepspeed_engine.optimizer

    def _inner_optimizer(self) -> torch.optim.Optimizer:
        return cast(torch.optim.Optimizer, self._zero.optimizer)

    def prepare(self) -> None:
        zero = self._zero
        self.set_learning_rate(0.0)
        if self.stage == 3:
            for number, partition in enumerate(zero.fp32_partitioned_groups_flat):
                partition.grad = torch.zeros_like(partition)
                zero._optimizer_step(number)
                partition.grad = None
        else:
            # All groups in one step: DeepSpeed links parameters to their state after the first.
            for partition in zero.single_partition_of_fp32_groups:
                partition.grad = torch.zeros_like(partition)
            zero.optimizer.step()
            zero.optimizer.zero_grad(set_to_none=True)
            zero._lazy_init_hp_params_optimizer_state()
        self._set_updates(0)

    def update(self, clip: float) -> float:
        # DeepSpeed clips by its own config, and drops a step whose gradient is not finite.
        self.deepspeed_engine.step()
        if self._zero.overflow:
            return math.inf
        return float(self.deepspeed_engine.get_global_grad_norm())

    def state(self) -> Iterator[ParameterState]:
        from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

        for name, parameter in self.named_parameters():
            weight = safe_get_full_fp32_param(parameter)
            moments = {
                key: safe_get_full_optimizer_state(parameter, key).cpu() for key in self._moments()
            }
            yield ParameterState(name, weight.cpu(), moments)

    @torch.no_grad()
    def restore(self, states: Iterator[ParameterState], updates: int) -> None:
        parameters = dict(self.named_parameters())
        for saved in states:
            if self.stage == 3:
                self._restore_slice(parameters[saved.name], saved)
            else:
                self._restore_whole(parameters[saved.name], saved)
        self._set_updates(updates)

    def _restore_whole(self, parameter: nn.Parameter, saved: ParameterState) -> None:
        from deepspeed.utils import safe_set_full_fp32_param, safe_set_full_optimizer_state

        parameter.data.copy_(saved.weight)
        safe_set_full_fp32_param(parameter, saved.weight)
        for key, moment in saved.moments.items():
            safe_set_full_optimizer_state(parameter, moment, key)

    def _restore_slice(self, parameter: nn.Parameter, saved: ParameterState) -> None:
        from deepspeed.utils import (
            safe_get_local_fp32_param,
            safe_set_local_fp32_param,
            safe_set_local_optimizer_state,
        )

        length = safe_get_local_fp32_param(parameter).numel()

        # The full setters overrun where a size does not divide by the ranks.
        def slice_of(whole: Tensor) -> Tensor:
            padded = torch.zeros(length * self.ranks, device=self.root_device)
            padded[: whole.numel()] = whole.flatten()
            return padded[self.rank * length :][:length]

        weight = slice_of(saved.weight)
        safe_set_local_fp32_param(parameter, weight)
        for key, moment in saved.moments.items():
            safe_set_local_optimizer_state(parameter, slice_of(moment), key)
        parameter.ds_tensor.data.copy_(weight)  # type: ignore[attr-defined]
        if parameter.data.numel() == saved.weight.numel():  # small ones stay gathered
            parameter.data.copy_(saved.weight)


def make_engine(strategy: str, accelerator: str, clip: float, timeout: timedelta) -> Engine:
    """The engine for `trainer.strategy` on an accelerator (cpu, cuda or mps)."""
    if strategy == "single":
        # Lightning refuses a CUDA device without an index; a CPU has none.
        return SingleEngine(torch.device("cpu" if accelerator == "cpu" else f"{accelerator}:0"))
    if accelerator == "mps":
        raise SesameError(
            f"trainer.strategy={strategy}: ranks cannot share the work on mps; use "
            "trainer.strategy=single or trainer.accelerator=cpu"
        )
    backend = "nccl" if accelerator == "cuda" else "gloo"
    common: dict[str, Any] = {
        # Whoever starts a rank gives it torchrun's variables; SLURM's own would requeue for us.
        "cluster_environment": TorchElasticEnvironment(),
        "process_group_backend": backend,
        "timeout": timeout,
    }
    if strategy == "ddp":
        return ReplicatedEngine(gradient_as_bucket_view=True, **common)  # no second copy of them
    return ShardedEngine(int(strategy[-1]), clip, overlap=accelerator == "cuda", **common)
