"""Engines by `trainer.strategy`: a single rank, DDP, or DeepSpeed's ZeRO 1 to 3."""

import argparse
import importlib
import math
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, cast

import torch
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from pytorch_lightning.plugins.precision import DeepSpeedPrecision
from pytorch_lightning.strategies import DDPStrategy, DeepSpeedStrategy
from torch import Tensor, nn

from data_prep.errors import SesameError
from pipeline.training.config import ZERO_BUCKET
from pipeline.training.engine import Engine, moment_names
from pipeline.training.parameter_state import ParameterState, to_host
from pipeline.training.restoring import SavedParameters
from pipeline.training.whole_engines import ReplicatedEngine, SingleEngine
from pipeline.training.zero_state import full_state, is_whole, load_fragment, load_slice

PERSISTENT = 100_000  # ZeRO 3 keeps parameters with fewer elements on every rank, as by default


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
            # DeepSpeed knows only what it trains.
            is_trained = parameter.requires_grad
            weight, moments = full_state(parameter, names) if is_trained else (parameter, {})
            if owner == self.rank:
                copies = {key: to_host(moment) for key, moment in moments.items()}
                yield ParameterState(name, to_host(weight), copies)

    @torch.no_grad()
    def restore(self, saved: SavedParameters, updates: int) -> None:
        for name, parameter, owner in self._owned_parameters():
            if is_whole(parameter, self.stage):
                self._read_on(owner, saved, name, parameter.data)
            if not parameter.requires_grad:
                continue
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
