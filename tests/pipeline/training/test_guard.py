"""The spike guard refuses single spikes and lasting jumps, and no ordinary loss."""

import math
import random
from collections.abc import Iterable

import pytest
import torch

from pipeline.training.guard import LEAST, WINDOW, factor, fault, limit, remember


def refused(losses: Iterable[float]) -> list[int]:
    """The numbers of the losses that the guard refuses; device and host decide alike."""
    recent: list[float] = []
    found = []
    for number, loss in enumerate(losses):
        highest = limit(recent)
        is_good = fault(loss, highest) is None
        assert torch.isfinite(factor(torch.tensor(loss, dtype=torch.float64), highest)) == is_good
        if is_good:
            recent = remember(loss, recent)
        else:
            found.append(number)
    assert len(recent) <= WINDOW
    return found


def noisy(level: float, count: int, seed: int = 0) -> list[float]:
    draw = random.Random(seed)
    return [draw.gauss(level, 0.05) for _ in range(count)]


def test_a_loss_that_jumps_for_good_is_refused_for_good() -> None:
    losses = noisy(5.0, 200) + noisy(7.0, 500, seed=1)
    assert refused(losses) == list(range(200, 700))


def test_a_single_spike_is_refused_and_nothing_after_it() -> None:
    assert refused([*noisy(5.0, 200), 9.0, *noisy(5.0, 200, seed=1)]) == [200]


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_refused_from_the_first_step(loss: float) -> None:
    assert refused([loss, 5.0, loss]) == [0, 2]


def test_training_that_goes_well_or_slowly_back_loses_no_step() -> None:
    falling = [10 * math.exp(-step / 300) + noise for step, noise in enumerate(noisy(1, 2000))]
    rising = [5 + step / 1000 + noise for step, noise in enumerate(noisy(0, 2000))]
    assert refused(falling) == refused(rising) == []


def test_rounding_is_no_spike_where_losses_do_not_vary() -> None:
    assert refused([2.0] * (LEAST + 10) + [2.0 + 1e-6] * 10) == []
    assert refused([2.0] * (LEAST + 10) + [2.5] * 10) == list(range(LEAST + 10, LEAST + 20))
