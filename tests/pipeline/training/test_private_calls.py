"""The private functions of torch, Lightning and DeepSpeed that we call: each must still be there.

A failure here after an upgrade says where to look; pyproject.toml bounds the versions for them.
"""

import inspect
from importlib.util import find_spec

import pytest
import torch
from pytorch_lightning.strategies import DDPStrategy, DeepSpeedStrategy
from pytorch_lightning.trainer.connectors.signal_connector import _SignalConnector
from torch.nn.parallel import DistributedDataParallel
from torch.optim.adagrad import adagrad


def test_flash_attention_takes_offsets_and_dropout() -> None:
    schema = torch.ops.aten._flash_attention_forward.default._schema
    names = [argument.name for argument in schema.arguments]
    assert names[:10] == [
        "query", "key", "value", "cum_seq_q", "cum_seq_k", "max_q", "max_k", "dropout_p",
        "is_causal", "return_debug_mask",
    ]  # fmt: skip
    assert schema.returns[0].name == "output"


def test_fused_optimizers_read_found_inf() -> None:
    assert "found_inf" in inspect.signature(adagrad).parameters
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weight], lr=1.0, fused=True)
    assert optimizer._step_supports_amp_scaling  # type: ignore[attr-defined]
    weight.grad = torch.ones(3)
    optimizer.found_inf = torch.tensor(1.0)
    optimizer.step()
    assert torch.equal(weight, torch.ones(3)) and optimizer.state[weight]["step"] == 0
    optimizer.found_inf = torch.tensor(0.0)
    optimizer.step()
    assert not torch.equal(weight, torch.ones(3))


def test_lightning_has_the_hooks_that_we_replace() -> None:
    assert callable(_SignalConnector.register_signal_handlers)
    for name in ("_setup_model_and_optimizer", "_init_deepspeed_distributed"):
        assert callable(getattr(DeepSpeedStrategy, name))


def test_ddp_can_leave_parameters_out() -> None:
    model = torch.nn.Linear(2, 2)
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ["weight"])
    assert model._ddp_params_and_buffers_to_ignore == ["weight"]
    assert callable(DDPStrategy._setup_model)


@pytest.mark.parametrize(
    ("module", "place"),
    [
        ("deepspeed.runtime.zero.stage_1_and_2", "_lazy_init_hp_params_optimizer_state"),
        ("deepspeed.runtime.zero.stage_1_and_2", "single_partition_of_fp32_groups"),
        ("deepspeed.runtime.zero.stage_1_and_2", "lp._hp_mapping"),
        ("deepspeed.utils.tensor_fragment", "lp_fragment_address: fragment_address"),
        ("deepspeed.utils.tensor_fragment", "def get_hp_fragment(self, optim_state_key=None)"),
        ("deepspeed.runtime.zero.partition_parameters", "param.ds_tensor"),
        ("deepspeed.runtime.zero.partition_parameters", "param.ds_numel"),
        ("deepspeed.runtime.zero.stage3", "fp32_partitioned_groups_flat"),
        ("deepspeed.runtime.zero.stage3", "def _optimizer_step("),
        ("deepspeed.comm.torch", "def build_shm_op("),
    ],
)
def test_deepspeed_has_the_parts_that_checkpoints_use(module: str, place: str) -> None:
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None
    with open(spec.origin) as source:
        assert place in source.read()
