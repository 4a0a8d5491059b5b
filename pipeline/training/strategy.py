"""Engines, one per `trainer.strategy`: a single rank, DDP, or DeepSpeed's ZeRO 1 to 3.

All are Lightning strategies with one small interface in addition, `Engine`: forward and backward of
a micro-batch, one update, and the training state as plain fp32 tensors by parameter name,
regardless of which rank holds which part. Mixed precision is autocast in the module and equal for
all engines: the strategy changes speed and memory, never the result.
"""

import argparse
import importlib
import math
from abc import abstractmethod
from collections.abc import Iterator
from datetime import timedelta
from functools import cached_property
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
from pipeline.training.host_group import HostGroup
from pipeline.training.parameter_state import ParameterState, owners, to_host
from pipeline.training.restoring import SavedParameters
from pipeline.training.zero_state import full_state, is_whole, load_fragment, load_slice

PERSISTENT = 100_000  # ZeRO 3 keeps parameters with fewer elements on every rank, as by default


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

    `prepare`, `update`, `state` and `restore` are collective: every rank must call them. The
    classes below implement them.
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
        for group in self.optimizers[0].param_groups:
            group["lr"] = lr

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


class _WholeEngine(Engine):
    """Base of `single` and `ddp`: every rank holds all weights and all optimizer state."""

    def prepare(self) -> None:
        optimizer = self.optimizers[0]
        self.set_learning_rate(0.0)
        for _, parameter in self.named_parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        self._set_updates(0)

    def update(self, clip: float) -> Tensor:
        parameters = [parameter for _, parameter in self.named_parameters()]
        norm = nn.utils.clip_grad_norm_(parameters, clip or math.inf)
        optimizer = self.optimizers[0]
        is_bad = ~torch.isfinite(norm)
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            # The optimizer's kernel reads this flag on the device and skips the update.
            optimizer.found_inf = is_bad.float()  # type: ignore[attr-defined]
            optimizer.step()
        elif not is_bad:  # one's own optimizer: the host has to read the flag
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return norm

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

    def _set_gradient_sync(self, last: bool) -> None:
        cast(DistributedDataParallel, self.model).require_backward_grad_sync = last


class _UntouchedInput(DeepSpeedPrecision):
    def convert_input(self, data: Any) -> Any:
        return data  # a batch holds only integers, so there is nothing to convert


def _no_operation() -> None:
    """Replaces the builder of an optional DeepSpeed kernel."""


class ShardedEngine(Engine, DeepSpeedStrategy):
    """DeepSpeed's ZeRO: partitions optimizer state (stage 1), gradients (2) and weights (3)."""

    def __init__(self, stage: int, clip: float, overlap: bool, **kwargs: Any) -> None:
        self.stage = stage
        zero: dict[str, Any] = {
            "stage": stage,
            "overlap_comm": overlap,
            "contiguous_gradients": True,
            "reduce_scatter": True,
            "reduce_bucket_size": ZERO_BUCKET,
        }
        if stage == 3:
            zero["stage3_param_persistence_threshold"] = PERSISTENT
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
        # DeepSpeedStrategy's own method refuses CPUs, which DeepSpeed itself supports.
        DDPStrategy.setup_environment(self)

    def setup_distributed(self) -> None:
        # On CPUs DeepSpeed would compile a kernel here that only its inference uses; that takes
        # minutes and needs a compiler. (deepspeed.comm's attribute `torch` is torch itself, so the
        # submodule of that name needs import_module.)
        backend: Any = importlib.import_module("deepspeed.comm.torch")
        backend.build_shm_op = _no_operation
        self.set_world_ranks()
        self._init_deepspeed_distributed()

    def _setup_model_and_optimizer(
        self, model: nn.Module, optimizer: Any, lr_scheduler: Any = None
    ) -> tuple[Any, Any]:
        import deepspeed

        engine, zero, _, _ = deepspeed.initialize(
            # Lightning would pass the device's index, which a CPU does not have.
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
            # Step all groups at once: DeepSpeed links parameters to their state after one step.
            for partition in zero.single_partition_of_fp32_groups:
                partition.grad = torch.zeros_like(partition)
            zero.optimizer.step()
            zero.optimizer.zero_grad(set_to_none=True)
            zero._lazy_init_hp_params_optimizer_state()
        self._set_updates(0)

    def update(self, clip: float) -> Tensor:
        # DeepSpeed clips by its own config and skips the update if the gradient is not finite. It
        # reads the device itself.
        self.deepspeed_engine.step()
        norm = math.inf if self._zero.overflow else self.deepspeed_engine.get_global_grad_norm()
        return torch.as_tensor(norm, device=self.root_device)

    def state(self) -> Iterator[ParameterState]:
        # ZeRO's optimizers keep the same moments for every parameter.
        names = moment_names(next(iter(self._inner_optimizer().state.values())))
        for name, parameter, owner in self._owned_parameters():
            weight, moments = full_state(parameter, names)
            if owner == self.rank:
                copies = {key: to_host(moment) for key, moment in moments.items()}
                yield ParameterState(name, to_host(weight), copies)

    @torch.no_grad()
    def restore(self, saved: SavedParameters, updates: int) -> None:
        for name, parameter, owner in self._owned_parameters():
            if is_whole(parameter, self.stage):
                self._read_on(owner, saved, name, parameter.data)
            if self.stage == 3:
                load_slice(name, parameter, saved, self.rank)
            else:
                load_fragment(name, parameter, saved)
        self._set_updates(updates)


def make_engine(strategy: str, accelerator: str, clip: float, timeout: timedelta) -> Engine:
    """Return the engine for `trainer.strategy` on an accelerator (cpu, cuda or mps).

    `timeout` limits each collective operation. Raises `SesameError` for several ranks on mps.
    """
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
        # Every rank gets torchrun's variables, also under SLURM: Lightning's SLURM environment
        # would requeue the job itself.
        "cluster_environment": TorchElasticEnvironment(),
        "process_group_backend": backend,
        "timeout": timeout,
    }
    if strategy == "ddp":
        # The view saves a second copy of the gradients.
        return ReplicatedEngine(gradient_as_bucket_view=True, broadcast_buffers=False, **common)
    return ShardedEngine(int(strategy[-1]), clip, overlap=accelerator == "cuda", **common)
