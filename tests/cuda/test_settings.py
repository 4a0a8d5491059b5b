"""The settings that DDP and DeepSpeed get on CUDA; their engines cannot start without a device."""

from datetime import timedelta

import pytest
from pytorch_lightning.strategies import DDPStrategy

from pipeline.training.config import ZERO_BUCKET
from pipeline.training.engine import Engine
from pipeline.training.strategy import PERSISTENT, ShardedEngine, make_engine

STAGES = (1, 2, 3)


def engine_for(strategy: str) -> Engine:
    return make_engine(strategy, "cuda", 0.5, timedelta(minutes=7))


@pytest.mark.parametrize("strategy", ["ddp", "zero1", "zero2", "zero3"])
def test_ranks_talk_by_nccl_and_wait_no_longer_than_the_watchdog(strategy: str) -> None:
    engine = engine_for(strategy)
    assert isinstance(engine, DDPStrategy)
    assert engine.process_group_backend == "nccl"
    assert engine._timeout == timedelta(minutes=7)


def test_ddp_keeps_one_copy_of_the_gradients_and_sends_no_buffers() -> None:
    engine = engine_for("ddp")
    assert isinstance(engine, DDPStrategy)
    settings = {"gradient_as_bucket_view": True, "broadcast_buffers": False}
    assert engine._ddp_kwargs == settings  # every parameter gets a gradient: no search for unused


@pytest.mark.parametrize("stage", STAGES)
def test_zero_overlaps_its_communication_and_leaves_precision_to_autocast(stage: int) -> None:
    engine = engine_for(f"zero{stage}")
    assert isinstance(engine, ShardedEngine) and isinstance(engine.config, dict)
    zero = {
        "stage": stage,
        "overlap_comm": True,
        "contiguous_gradients": True,
        "reduce_scatter": True,
        "reduce_bucket_size": ZERO_BUCKET,
    } | ({"stage3_param_persistence_threshold": PERSISTENT} if stage == 3 else {})
    assert engine.config["zero_optimization"] == zero
    assert engine.config["gradient_clipping"] == 0.5
    assert not {"fp16", "bf16", "amp"} & engine.config.keys()
    assert "offload_optimizer" not in zero and "offload_param" not in zero


@pytest.mark.parametrize("stage", STAGES)
def test_zero_on_a_cpu_differs_only_in_the_overlap(stage: int) -> None:
    on_cpu = make_engine(f"zero{stage}", "cpu", 0.5, timedelta(minutes=7))
    on_cuda = engine_for(f"zero{stage}")
    assert isinstance(on_cpu, ShardedEngine) and isinstance(on_cpu.config, dict)
    assert isinstance(on_cuda, ShardedEngine) and isinstance(on_cuda.config, dict)
    zero = on_cpu.config["zero_optimization"] | {"overlap_comm": True}
    assert on_cpu.config | {"zero_optimization": zero} == on_cuda.config
