"""GPUs follow from the configuration; the site names their type, and may give more."""

import pytest

from data_prep.errors import UsageError
from pipeline.cluster.resources import Resources
from pipeline.config.compose import compose_config


def gpus(stage: str, *overrides: str, site: str | None = None, nodes_have: int | None = 8) -> str:
    config = compose_config(["experiment=smoke", "trainer=local", *overrides])
    return Resources(gpus=site).for_stage(stage, config, nodes_have).gpus or ""


EIGHT = ("trainer.devices=8", "trainer.strategy=ddp")


@pytest.mark.parametrize("accelerator", ["auto", "cuda"])
def test_a_pretraining_gets_its_devices(accelerator: str) -> None:
    words = (*EIGHT, f"trainer.accelerator={accelerator}")
    assert gpus("pretrain", *words) == "8"
    assert gpus("pretrain", *words, site="a100") == "a100:8"
    assert gpus("pretrain", *words, site="a100:8", nodes_have=None) == "a100:8"


def test_auto_takes_gpus_only_where_nodes_have_some() -> None:
    assert gpus("pretrain", *EIGHT, nodes_have=0) == ""
    assert gpus("pretrain", *EIGHT, nodes_have=None) == ""
    assert gpus("pretrain", *EIGHT, site="0") == ""
    assert gpus("finetune") == gpus("layers") == "1"
    assert gpus("finetune", "finetune.accelerator=cpu", site="4") == ""
    assert gpus("pretrain", "trainer.accelerator=cpu", site="4") == ""


def test_a_fine_tuning_gets_its_devices() -> None:
    assert gpus("finetune", "finetune.devices=2") == gpus("model", "finetune.devices=2") == "2"
    assert gpus("layers", "finetune.devices=2") == "1"


def test_a_stage_without_gpus_gets_those_the_site_gives_it() -> None:
    assert gpus("shard") == ""
    assert gpus("shard", site="1") == "1"


@pytest.mark.parametrize(
    ("site", "nodes_have", "says"),
    [
        ("0", 8, "stages.pretrain.gpus=0: trainer.devices=8 needs 8 GPUs per node; set gpus"),
        ("a100:4", 8, "of the site file to a100:8"),
        (None, 0, "the nodes of the default partition have 0"),
        (None, 4, "have 4; choose another partition"),
    ],
)
def test_cuda_without_enough_gpus_is_refused(site: str | None, nodes_have: int, says: str) -> None:
    with pytest.raises(UsageError) as error:
        gpus("pretrain", *EIGHT, "trainer.accelerator=cuda", site=site, nodes_have=nodes_have)
    assert says in str(error.value)
