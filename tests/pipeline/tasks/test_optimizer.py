"""AdamW of fine-tuning: rates over time, clipping, and tables of embeddings that step lazily."""

import numpy as np
import pytest
import torch
from torch import nn

from pipeline.tasks.config import FinetuneConfig
from pipeline.tasks.lazy_rows import LASTING, LazyEmbedding
from pipeline.tasks.optimizer import Optimizer, learning_rate

ROWS, WIDTH = 12, 5


def test_the_learning_rate_rises_and_falls_in_lines() -> None:
    rates = [learning_rate(step, 100, 0.1) for step in range(101)]
    assert rates[9] == rates[10] == max(rates) == 1.0
    assert rates[100] == 0.0
    assert np.allclose(np.diff(rates[:10]), 0.1)
    assert np.allclose(np.diff(rates[10:]), -1 / 90)


@pytest.mark.parametrize("clip", [0.0, 0.5, 1000.0])
def test_steps_are_those_of_clipped_adamw(clip: float) -> None:
    """Beside torch's own clipping, rates and decay; one parameter has no gradient."""
    torch.manual_seed(0)
    config = FinetuneConfig(lr=0.1, clip=clip, weight_decay=0.1)
    ours, theirs = ([nn.Linear(3, 40), nn.Linear(40, 2), nn.Linear(5, 5)] for _ in range(2))
    for own, their in zip(ours, theirs, strict=True):
        their.load_state_dict(own.state_dict())
    optimizer = Optimizer(_Encoder(ours[0]), nn.ModuleList(ours[1:]), config, total=20)
    values = [value for layer in theirs for value in layer.parameters()]
    adamw = torch.optim.AdamW(
        [
            {"params": [v for v in values if v.ndim > 1], "weight_decay": 0.1},
            {"params": [v for v in values if v.ndim == 1], "weight_decay": 0.0},
        ]
    )
    for step in range(20):
        x = torch.randn(7, 3)
        for layers in (ours, theirs):
            torch.autograd.backward((layers[1](layers[0](x)) ** 2).mean())
        optimizer.step(step)
        if clip:
            nn.utils.clip_grad_norm_(values, clip)
        for group in adamw.param_groups:
            group["lr"] = 0.1 * learning_rate(step, 20, config.warmup)
        adamw.step()
        adamw.zero_grad()
    for own, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own.state_dict(), their.state_dict(), rtol=1e-4, atol=1e-5)


class _Encoder(nn.ModuleList):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__([layer])

    def blocks(self) -> list[list[nn.Parameter]]:
        return [list(self.parameters())]


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
