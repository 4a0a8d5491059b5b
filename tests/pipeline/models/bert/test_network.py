"""BERT over flat batches: the same answer however a batch is laid out, and honest losses."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from data_prep.errors import UsageError
from pipeline.data.batch import IGNORE_INDEX, Batch
from pipeline.models.bert.config import BertConfig
from pipeline.models.bert.cost import BertCost
from pipeline.models.bert.network import Bert, BertForPretraining
from pipeline.models.losses import masked_loss

VOCAB = 61
SMALL = BertConfig(layers=2, hidden=24, heads=3, intermediate=40, max_positions=48)
VARIANTS = [
    replace(
        SMALL,
        norm=norm,
        positions=positions,
        activation=activation,
        biases=biases,
        tied=biases,
        segments=biases,
    )
    for norm, positions, (activation, biases) in product(
        ("post", "pre"), ("learned", "sinusoidal", "rotary"), (("gelu", True), ("geglu", False))
    )
]


def make_batch(lengths: list[int], seed: int = 0, vocab: int = VOCAB) -> Batch:
    random = np.random.default_rng(seed)
    positions = np.concatenate([np.arange(length) for length in lengths])
    seconds = np.concatenate([np.arange(length) >= length // 2 for length in lengths])
    inner = np.flatnonzero(positions > 0)
    targets = np.sort(random.choice(inner, max(1, len(inner) // 6), replace=False))
    return Batch(
        tokens_N=torch.from_numpy(random.integers(5, vocab, len(positions))),
        positions_N=torch.from_numpy(positions),
        segments_N=torch.from_numpy(seconds.astype(np.int64)),
        lengths=np.array(lengths),
        targets_M=torch.from_numpy(targets),
        labels_M=torch.from_numpy(random.integers(5, vocab, len(targets))),
        pair_labels_E=torch.from_numpy(random.integers(0, 2, len(lengths))),
    )


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("config", VARIANTS, ids=str)
def test_losses_equal_those_of_all_logits_and_every_parameter_learns(config: BertConfig) -> None:
    """The short way (masked rows only) gives what logits at all positions give."""
    torch.manual_seed(0)
    model = BertForPretraining(config, VOCAB).eval()
    batch = make_batch([7, 31, 12, 31, 1 + 7])
    logits_NV, logits_E2 = model.predict(
        batch.tokens_N, batch.positions_N, batch.segments_N, batch.lengths
    )
    losses = model(batch)
    expected = F.cross_entropy(logits_NV[batch.targets_M], batch.labels_M, reduction="sum")
    torch.testing.assert_close(losses.mlm_sum, expected, atol=1e-4, rtol=1e-6)
    right = (logits_NV[batch.targets_M].argmax(1) == batch.labels_M).sum()
    assert losses.mlm_correct == right
    expected = F.cross_entropy(logits_E2, batch.pair_labels_E, reduction="sum")
    torch.testing.assert_close(losses.pair_sum, expected, atol=1e-5, rtol=1e-6)
    (losses.mlm_sum + losses.pair_sum).backward()
    idle = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert idle == []


@pytest.mark.parametrize("config", VARIANTS[::3], ids=str)
def test_an_example_is_encoded_alike_alone_and_among_others(config: BertConfig) -> None:
    torch.manual_seed(0)
    model = Bert(config, VOCAB).eval()
    batch = make_batch([9, 30, 4, 30, 10])
    together = model(batch.tokens_N, batch.positions_N, batch.segments_N, batch.lengths)
    assert len(together) == config.layers + 1
    start = 0
    for length in batch.lengths.tolist():
        part = slice(start, start + length)
        start += length
        alone = model(
            batch.tokens_N[part],
            batch.positions_N[part],
            batch.segments_N[part],
            np.array([length]),
        )
        for whole_ND, own_ND in zip(together, alone, strict=True):
            torch.testing.assert_close(whole_ND[part], own_ND, atol=1e-5, rtol=0)


def gradients(model: BertForPretraining, batch: Batch, seed: int) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    losses = model(batch)
    parameters = list(model.parameters())
    return [losses.mlm_sum, *torch.autograd.grad(losses.mlm_sum + losses.pair_sum, parameters)]


def test_a_seed_fixes_the_result_and_checkpointing_does_not_change_it() -> None:
    torch.manual_seed(0)
    model = BertForPretraining(SMALL, VOCAB)
    batch = make_batch([20, 33, 7, 33])
    first, again, other = (gradients(model, batch, seed) for seed in (1, 1, 2))
    model.bert.checkpoint_activations = True
    recomputed = gradients(model, batch, 1)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(first, recomputed, strict=True))
    assert not torch.equal(first[0], other[0])


def test_without_pairs_the_pair_loss_is_zero_and_heads_have_gradients() -> None:
    model = BertForPretraining(SMALL, VOCAB)
    batch = replace(make_batch([10, 12]), pair_labels_E=torch.tensor([IGNORE_INDEX, IGNORE_INDEX]))
    losses = model(batch)
    assert losses.pair_sum == 0 and losses.pair_correct == 0
    (losses.mlm_sum + losses.pair_sum).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert not model.pair.weight.grad.any()


def test_positions_matter_and_segments_matter() -> None:
    torch.manual_seed(0)
    for positions in ("learned", "sinusoidal", "rotary"):
        model = Bert(replace(SMALL, positions=positions, init_std=0.2), VOCAB).eval()
        batch = make_batch([12])
        straight = model(batch.tokens_N, batch.positions_N, batch.segments_N, batch.lengths)[-1]
        turned = model(batch.tokens_N, batch.positions_N.flip(0), batch.segments_N, batch.lengths)
        assert (straight - turned[-1]).abs().max() > 0.01
        other = model(batch.tokens_N, batch.positions_N, 1 - batch.segments_N, batch.lengths)
        assert (straight - other[-1]).abs().max() > 0.01


@pytest.mark.parametrize("config", VARIANTS, ids=str)
def test_costs_are_what_torch_counts(config: BertConfig) -> None:
    model = BertForPretraining(config, VOCAB)
    cost = BertCost(config, VOCAB)
    assert cost.parameters() == sum(weight.numel() for weight in model.parameters())
    batch = make_batch([24] * 8)
    with FlopCounterMode(display=False) as counter:
        losses = model(batch)
        (losses.mlm_sum + losses.pair_sum).backward()
    share = len(batch.targets_M) / len(batch.tokens_N)
    predicted = cost.flops_per_token(24, share) * len(batch.tokens_N)
    assert predicted == pytest.approx(counter.get_total_flops(), rel=0.02)
    with FlopCounterMode(display=False) as counter:
        model.bert(batch.tokens_N, batch.positions_N, batch.segments_N, batch.lengths)
    needed = cost.model_flops_per_token(24, predicted_share=0) * len(batch.tokens_N)
    assert needed == pytest.approx(3 * counter.get_total_flops(), rel=0.02)  # and backward


def test_rotary_attention_depends_on_distance_only() -> None:
    torch.manual_seed(0)
    model = Bert(replace(SMALL, positions="rotary", init_std=0.2), VOCAB).eval()
    batch = make_batch([12])
    here = model(batch.tokens_N, batch.positions_N, batch.segments_N, batch.lengths)[-1]
    there = model(batch.tokens_N, batch.positions_N + 20, batch.segments_N, batch.lengths)[-1]
    torch.testing.assert_close(here, there, atol=1e-5, rtol=0)


def test_too_long_an_example_is_refused() -> None:
    model = Bert(SMALL, VOCAB)
    batch = make_batch([49])
    with pytest.raises(UsageError, match=r"49 tokens.*max_positions=48"):
        model(batch.tokens_N, batch.positions_N, batch.segments_N, batch.lengths)


def test_odd_rotary_heads_are_refused() -> None:
    with pytest.raises(UsageError, match=r"model\.heads=8"):
        replace(SMALL, heads=8, positions="rotary").check()


def test_initial_weights_are_truncated_at_two_deviations() -> None:
    model = BertForPretraining(replace(SMALL, init_std=0.05), VOCAB)
    weights = torch.cat([p.flatten() for n, p in model.named_parameters() if "norm" not in n])
    assert weights.abs().max() <= 0.1
    assert 0.03 < model.bert.embeddings.tokens.weight.std() < 0.05


@pytest.mark.parametrize("predictions", [1, 5, 700])
def test_the_masked_loss_equals_cross_entropy(predictions: int) -> None:
    torch.manual_seed(0)
    x = (3 * torch.randn(predictions, 8)).requires_grad_()
    weight = (3 * torch.randn(37, 8)).requires_grad_()
    bias = torch.randn(37, requires_grad=True)
    labels = torch.randint(37, (predictions,))
    logits = F.linear(x, weight, bias)
    expected = F.cross_entropy(logits, labels, reduction="sum")
    loss, correct = masked_loss(x, weight, bias, labels)
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-5)
    assert correct == (logits.argmax(1) == labels).sum()
    found = torch.autograd.grad(0.25 * loss, (x, weight, bias))
    wanted = torch.autograd.grad(0.25 * expected, (x, weight, bias))
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-5)
    with torch.no_grad():
        assert masked_loss(x, weight, bias, labels)[0] == loss


def test_the_masked_loss_survives_huge_logits() -> None:
    x, weight, bias = torch.full((1, 1), 1e4), torch.tensor([[1.0], [-1.0]]), torch.zeros(2)
    assert masked_loss(x, weight, bias, torch.tensor([1]))[0] == 2e4


def test_bf16_autocast_stays_near_full_precision() -> None:
    torch.manual_seed(0)
    model = BertForPretraining(SMALL, VOCAB).eval()
    batch = make_batch([7, 31, 12])
    full = model(batch)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model(batch)
    assert mixed.mlm_sum.dtype == torch.float32
    torch.testing.assert_close(mixed.mlm_sum, full.mlm_sum, rtol=0.02, atol=0)
    mixed.mlm_sum.backward()
