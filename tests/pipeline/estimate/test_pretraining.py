"""Estimates: their arithmetic is that of real tensors, and what cannot work is called out."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from data_prep.errors import UsageError
from pipeline.commands.main import run
from pipeline.config.compose import compose_config
from pipeline.estimate.memory import model_memory
from pipeline.estimate.pretraining import Offer, estimate, offers
from pipeline.models.bert.config import BertConfig
from pipeline.models.bert.cost import BertCost
from pipeline.models.bert.network import BertForPretraining
from pipeline.models.cost import Pass
from pipeline.stages import STAGES
from pipeline.training.gpus import GPUS, recognise
from tests.pipeline.models.bert.test_network import make_batch

VOCAB = 997
SMALL = BertConfig(layers=3, hidden=64, heads=2, intermediate=256, max_positions=128)
PLAIN = replace(SMALL, dropout=0.0, attention_dropout=0.0)


def kept_bytes(model: BertForPretraining, lengths: list[int], mixed: bool) -> tuple[int, Pass]:
    """What autograd really keeps of a forward pass, weights left out, each storage once."""
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage
        return tensor

    batch = make_batch(lengths, vocab=VOCAB)
    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=mixed),
    ):
        losses = model(batch)
    assert losses.mlm_sum.requires_grad
    precision = "bf16-mixed" if mixed else "fp32"
    shape = Pass(len(batch.tokens_N), lengths[0], len(batch.targets_M), precision, on_host=True)
    return sum(storage.nbytes() for storage in kept.values()), shape


@pytest.mark.parametrize(
    ("config", "mixed"),
    [
        (SMALL, False),
        (replace(SMALL, norm="pre", activation="geglu"), False),
        (PLAIN, False),
        (PLAIN, True),
        (replace(PLAIN, norm="pre", activation="geglu", positions="rotary", biases=False), True),
    ],
    ids=str,
)
def test_activations_are_what_autograd_keeps(config: BertConfig, mixed: bool) -> None:
    """Within 15 %: logits under bf16 count their gradient too, which autograd makes later."""
    kept, shape = kept_bytes(BertForPretraining(config, VOCAB), [64] * 32, mixed)
    assert BertCost(config, VOCAB).activation_bytes(shape) == pytest.approx(kept, rel=0.15)


def test_checkpointing_keeps_the_layers_inputs_only() -> None:
    kept, shape = kept_bytes(BertForPretraining(PLAIN, VOCAB, True), [64] * 32, False)
    recomputed = BertCost(PLAIN, VOCAB).activation_bytes(replace(shape, checkpointing=True))
    whole = BertCost(PLAIN, VOCAB).activation_bytes(shape)
    assert kept < recomputed < whole  # one layer's tensors come back in the backward pass


def test_each_stage_of_zero_divides_one_part_more() -> None:
    parts = {name: model_memory(1000, name, 4, "fp32") for name in ("ddp", "zero1", "zero2")}
    assert (parts["ddp"].gradients, parts["ddp"].optimizer) == (4000, 8000)
    assert (parts["zero1"].gradients, parts["zero1"].optimizer) == (4000, 2000)
    assert (parts["zero2"].gradients, parts["zero2"].optimizer) == (1000, 2000)
    assert model_memory(1000, "zero3", 4, "fp32").weights < parts["zero2"].weights
    assert model_memory(1000, "single", 1, "bf16-mixed").weights == 6000


def offer(gpu: str, *overrides: str) -> Offer:
    config = compose_config(list(overrides))
    chosen = [each for each in GPUS if each.name == gpu]
    return offers(estimate(config, STAGES), config, chosen, 0.4, None)[0]


def test_bert_base_is_the_papers_sum() -> None:
    config = compose_config(["experiment=bert_base", "trainer.strategy=ddp", "trainer.devices=8"])
    found = estimate(config, STAGES)
    assert found.parameters == 110_106_428
    assert [phase.steps for phase in found.phases] == [900_000, 100_000]
    assert [phase.tokens_per_step for phase in found.phases] == [256 * 128, 256 * 512]
    assert found.tokens == pytest.approx(42.6e9, rel=1e-3)
    assert found.flops == pytest.approx(2.26e19, rel=1e-2)
    assert {phase.epochs for phase in found.phases} == {None}


def test_more_gpus_take_less_time_and_the_same_money() -> None:
    one = offer("H100", "experiment=bert_base")
    eight = offer("H100", "experiment=bert_base", "trainer.strategy=ddp", "trainer.devices=8")
    assert one.hours == pytest.approx(8 * eight.hours)
    assert one.cost == pytest.approx(eight.cost)
    assert not one.remedy


def test_what_does_not_fit_is_called_out_with_a_remedy_that_works() -> None:
    wanted = ["experiment=bert_modern", "trainer.micro_batch_size=512"]
    refused = offer("L4", *wanted)
    assert refused.needs > 24e9
    rows = refused.remedy.removeprefix("micro_batch_size=").split()[0]
    accepted = offer("L4", wanted[0], f"trainer.micro_batch_size={rows}")
    assert accepted.remedy == ""


def test_a_budget_in_hours_buys_tokens() -> None:
    clock = ["experiment=bert_mini", "trainer.max_steps=null", "trainer.max_hours=2"]
    bought = offer("L4", *clock)
    assert bought.hours == 2
    assert bought.tokens > 1e8


def test_epochs_and_disk_follow_the_corpus(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("x" * 4_400_000)  # a million pieces
    corpus = [f"corpus.paths={tmp_path}", f"paths.store={tmp_path / 'store'}"]
    found = estimate(compose_config(["experiment=bert_mini", *corpus]), STAGES)
    (phase,) = found.phases
    assert phase.epochs == pytest.approx(20_000 * 64 * 128 / 1e6)
    assert found.disk["examples"] == pytest.approx(2e6)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--gpu=A1000",), "--gpu=A1000: must be one of A100-40"),
        (("--utilisation=40",), "--utilisation=40: must be more than 0 and at most 1"),
        (("--price=cheap",), "--price=cheap: must be a number"),
        (("bert_base",), "not an override"),
        (("trainer.max_steps=null",), "no budget to train for"),
    ],
)
def test_mistakes_are_answered(
    words: tuple[str, ...], says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["estimate", *words]) == 2
    assert says in " ".join(capfd.readouterr().err.split())


def test_gpus_are_recognised_by_what_cuda_calls_them() -> None:
    names = ("NVIDIA A100-SXM4-80GB", "NVIDIA L40S", "NVIDIA L4", "NVIDIA GeForce RTX 4090")
    peaks = [gpu and gpu.bf16 for gpu in map(recognise, names)]
    assert peaks == [312e12, 362e12, 121e12, 165e12]
    assert recognise("Quadro 4000") is None


def test_estimates_need_no_torch() -> None:
    code = (
        "import sys; from pipeline.commands.main import run;"
        "run(['estimate', 'experiment=bert_large', 'trainer.devices=4', 'trainer.strategy=zero3']);"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "336,226,108 parameters" in done.stdout


def test_another_kind_of_model_is_refused() -> None:
    config = compose_config(["experiment=elmo_tiny"])
    with pytest.raises(UsageError, match=r"model\.kind=elmo"):
        estimate(config, STAGES)
