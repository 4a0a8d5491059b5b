"""Attention over flat batches equals a plain loop over examples, gradients included."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pipeline.models.attention import AttentionPlan, attend, attend_blocks, attend_flash
from pipeline.models.dropout import Dropout, random_bits

HEADS, WIDTH = 3, 8
MIXES = {
    "one": [5],
    "single pieces": [1, 1, 1],
    "equal": [16] * 20,
    "mixed": [40, 3, 128, 128, 17, 128, 39, 1, 36, 17],
    "long": [300, 20, 299],
}


def plain_attention(
    qkv_N3HD: Tensor, lengths: np.ndarray, is_causal: bool = False, window: int | None = None
) -> Tensor:
    outputs = []
    for example in qkv_N3HD.split(lengths.tolist()):
        q, k, v = example.permute(1, 2, 0, 3)
        scores = q @ k.transpose(1, 2) / WIDTH**0.5
        if is_causal:
            later = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, -torch.inf)
        if window is not None:
            places = torch.arange(scores.shape[-1])
            far = (places[:, None] - places).abs() > window
            scores = scores.masked_fill(far, -torch.inf)
        weights = torch.softmax(scores, -1)
        outputs.append((weights @ v).transpose(0, 1))
    return torch.cat(outputs)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("function", [attend, attend_blocks])
@pytest.mark.parametrize("lengths", MIXES.values(), ids=MIXES.keys())
def test_equals_a_loop_over_examples(lengths: list[int], function, is_causal: bool) -> None:
    lengths_E = np.array(lengths)
    torch.manual_seed(0)
    qkv_N3HD = torch.randn(lengths_E.sum(), 3, HEADS, WIDTH, requires_grad=True)
    direction = torch.randn(lengths_E.sum(), HEADS, WIDTH)
    plan = AttentionPlan.of(lengths_E, is_causal=is_causal)
    expected = plain_attention(qkv_N3HD, lengths_E, is_causal)
    found = plan.restore(function(plan.sort(qkv_N3HD), plan, 0.0))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(
        torch.autograd.grad(found, qkv_N3HD, direction)[0],
        torch.autograd.grad(expected, qkv_N3HD, direction)[0],
        atol=1e-5,
        rtol=0,
    )


@pytest.mark.parametrize("window", [0, 1, 5, 64])
@pytest.mark.parametrize("function", [attend, attend_blocks])
@pytest.mark.parametrize("lengths", MIXES.values(), ids=MIXES.keys())
def test_a_window_hides_distant_tokens(lengths: list[int], function, window: int) -> None:
    lengths_E = np.array(lengths)
    torch.manual_seed(0)
    qkv_N3HD = torch.randn(lengths_E.sum(), 3, HEADS, WIDTH, requires_grad=True)
    direction = torch.randn(lengths_E.sum(), HEADS, WIDTH)
    plan = AttentionPlan.of(lengths_E)
    expected = plain_attention(qkv_N3HD, lengths_E, window=window)
    found = plan.restore(function(plan.sort(qkv_N3HD), plan, 0.0, window))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    gradient, wanted = (
        torch.autograd.grad(result, qkv_N3HD, direction)[0] for result in (found, expected)
    )
    torch.testing.assert_close(gradient, wanted, atol=1e-5, rtol=0)


@given(st.lists(st.integers(1, 70), min_size=1, max_size=60))
@settings(max_examples=60, deadline=None)
def test_a_plan_covers_every_piece_once_and_keeps_examples_whole(lengths: list[int]) -> None:
    lengths_E = np.array(lengths)
    plan = AttentionPlan.of(lengths_E)
    example_N = torch.from_numpy(np.repeat(np.arange(len(lengths)), lengths_E))
    rows_N = torch.arange(len(example_N))
    assert torch.equal(plan.restore(plan.sort(rows_N)), rows_N)
    assert torch.equal(plan.sort(rows_N)[plan.rows(rows_N)], rows_N)
    starts_E = torch.from_numpy(np.cumsum(lengths_E) - lengths_E)
    assert torch.equal(plan.rows(starts_E), plan.starts_E)
    end = 0
    for block in plan.blocks:
        assert block.start == end
        end = block.end
        laid_BL = block.to_padded(plan.sort(example_N) + 1)
        for row in laid_BL.tolist():
            assert len(set(row) - {0}) == 1
            assert row[0] != 0
        assert torch.equal(
            block.from_padded(laid_BL), plan.sort(example_N)[block.start : block.end] + 1
        )
        if block.padding is None:
            assert laid_BL.min() > 0
    assert end == len(example_N)


def test_many_examples_of_one_length_need_no_padding() -> None:
    plan = AttentionPlan.of(np.array([128] * 10 + [127, 126, 120]))
    dense, padded = plan.blocks
    assert (dense.examples, dense.padding) == (10, None)
    assert (padded.examples, padded.length) == (3, 127)


def flash_twin(
    q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, _offsets: Tensor, longest: int,
    _longest: int, dropout: float, is_causal: bool, _debug: bool, *,
    window_size_left: int | None, window_size_right: int | None,
) -> tuple[Tensor]:  # fmt: skip
    """What flash attention computes, by the contract of its operator, on any device."""
    assert torch.equal(offsets, _offsets) and offsets.dtype == torch.int32
    assert int(offsets.diff().max()) == longest == _longest
    assert window_size_left == window_size_right
    outputs = []
    for start, end in pairwise(offsets.tolist()):
        heads = [part[start:end].transpose(0, 1) for part in (q, k, v)]
        places = torch.arange(end - start)
        ahead = places - places[:, None]  # of the query
        seen = torch.ones_like(ahead, dtype=torch.bool)
        if is_causal:
            seen &= ahead <= 0
        if window_size_left is not None:
            seen &= ahead.abs() <= window_size_left
        scores = heads[0] @ heads[1].mT / q.shape[-1] ** 0.5
        weights = torch.softmax(scores.masked_fill(~seen, -torch.inf), -1)
        weights = torch.nn.functional.dropout(weights, dropout)
        outputs.append((weights @ heads[2]).transpose(0, 1))
    return (torch.cat(outputs),)


@pytest.mark.parametrize(("is_causal", "window"), [(False, None), (True, None), (False, 3)])
def test_the_call_of_flash_attention_computes_the_same_as_blocks(
    monkeypatch: pytest.MonkeyPatch, is_causal: bool, window: int | None
) -> None:
    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", flash_twin)
    lengths_E = np.array(MIXES["mixed"])
    torch.manual_seed(0)
    qkv_N3HD = torch.randn(lengths_E.sum(), 3, HEADS, WIDTH)
    plan = AttentionPlan.of(lengths_E, is_causal=is_causal)
    expected = attend_blocks(qkv_N3HD, plan, 0.0, window)
    torch.testing.assert_close(attend_flash(qkv_N3HD, plan, 0.0, window), expected)


@pytest.mark.parametrize("function", [attend_flash, attend, attend_blocks])
def test_attention_with_dropout_has_the_mean_of_plain_attention(
    monkeypatch: pytest.MonkeyPatch, function
) -> None:
    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", flash_twin)
    lengths_E = np.array([9, 5, 9])
    torch.manual_seed(0)
    qkv_N3HD = torch.randn(lengths_E.sum(), 3, HEADS, WIDTH)
    plan = AttentionPlan.of(lengths_E)
    plain = attend_blocks(qkv_N3HD, plan, 0.0)
    draws = torch.stack([function(qkv_N3HD, plan, 0.2) for _ in range(2000)])
    errors = draws.std(0) / len(draws) ** 0.5
    assert errors.min() > 0
    assert ((draws.mean(0) - plain) / errors).abs().max() < 6


def test_gradients_with_dropout_match_finite_differences() -> None:
    """Dropout draws from torch's generator: with the seed held, the function is fixed."""
    lengths_E = np.array([4, 3, 4])
    plan = AttentionPlan.of(lengths_E)
    torch.manual_seed(0)
    qkv = torch.randn(lengths_E.sum(), 3, 2, 4, dtype=torch.double, requires_grad=True)

    def seeded(x: Tensor) -> Tensor:
        torch.manual_seed(7)
        return attend(x, plan, 0.4)

    assert torch.autograd.gradcheck(seeded, qkv)


def test_dropout_keeps_the_mean_and_drops_the_stated_share() -> None:
    torch.manual_seed(0)
    dropout = Dropout(0.1)
    x = torch.ones(1000, 1001, requires_grad=True)
    y = dropout(x)
    assert abs((y == 0).float().mean().item() - 0.1) < 0.002
    assert abs(y.mean().item() - 1) < 0.002
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, y)
    assert dropout.eval()(x) is x


def test_random_bits_are_uniform_over_sixteen_bits() -> None:
    torch.manual_seed(0)
    bits = random_bits((3, 100_001)).long()
    assert bits.shape == (3, 100_001)
    assert bits.min() < -32_700 and bits.max() > 32_700
    counts = torch.bincount((bits.flatten() + 32_768) // 4096, minlength=16)
    assert counts.min() > 0.97 * bits.numel() / 16
