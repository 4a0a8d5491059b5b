"""AdamW of fine-tuning: rates over time, clipping, and tables of embeddings that step lazily."""

import numpy as np
import pytest
import torch
from torch import nn

from pipeline.tasks.lazy_rows import LASTING, LazyEmbedding
from pipeline.tasks.optimizer import clip_gradients, learning_rate

ROWS, WIDTH = 12, 5


def test_the_learning_rate_rises_and_falls_in_lines() -> None:
    rates = [learning_rate(step, 100, 0.1) for step in range(101)]
    assert rates[9] == rates[10] == max(rates) == 1.0
    assert rates[100] == 0.0
    assert np.allclose(np.diff(rates[:10]), 0.1)
    assert np.allclose(np.diff(rates[10:]), -1 / 90)


@pytest.mark.parametrize("largest", [0.5, 1000.0])
def test_gradients_are_clipped_as_torch_does(largest: float) -> None:
    clipped = []
    for clip in (clip_gradients, nn.utils.clip_grad_norm_):
        rng = torch.Generator().manual_seed(0)
        values = [nn.Parameter(torch.zeros(size)) for size in (3, 40, 7)]
        for value in values[:2]:  # one has no gradient
            value.grad = torch.randn(value.shape, generator=rng)
        clip(values, largest)
        clipped.append([value.grad for value in values])
    (*ours, none), (*theirs, _) = clipped
    assert none is None
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_a_lazy_table_is_where_adamw_would_have_it(decay: float) -> None:
    """Row 0 is read at the ends only, row 1 never, row 2 always, others now and then."""
    rng = np.random.default_rng(0)
    start = torch.from_numpy(rng.normal(size=(ROWS, WIDTH)).astype(np.float32))
    slopes_RD = torch.from_numpy(rng.normal(size=(ROWS, WIDTH)).astype(np.float32))
    lazy = LazyEmbedding(nn.Embedding.from_pretrained(start.clone(), freeze=False))
    whole = nn.Embedding.from_pretrained(start.clone(), freeze=False)
    adamw = torch.optim.AdamW(whole.parameters(), weight_decay=decay)
    total = LASTING + 100
    for step in range(total):
        often = rng.choice(np.arange(3, ROWS), size=rng.integers(1, 6))
        ends = [0] if step in (0, total - 1) else []
        tokens = torch.tensor([2, *often, *ends])
        rate = 0.01 * learning_rate(step, total + 1, 0.1)
        for table in (lazy, whole):  # gradients follow from weights, so that errors would add up
            loss = ((table(tokens) - slopes_RD[tokens]) ** 2 * (1 + step % 3)).sum()
            torch.autograd.backward(loss)
        adamw.param_groups[0]["lr"] = rate
        adamw.step()
        adamw.zero_grad()
        lazy.step(rate, decay)
        if step in (50, total // 2):  # an evaluation in between changes nothing
            lazy.eval()
            torch.testing.assert_close(lazy.weight[2:], whole.weight[2:], rtol=1e-4, atol=1e-5)
            lazy.train()
    with torch.inference_mode():
        lazy.eval()
    read = [row for row in range(ROWS) if row != 1]
    torch.testing.assert_close(lazy.weight[read], whole.weight[read], rtol=1e-4, atol=1e-5)
    assert (lazy.weight[read] - start[read]).abs().min() > 0
    assert torch.equal(lazy.weight[1], start[1])
    assert torch.equal(lazy(torch.tensor([3])), lazy.weight[3:4])
