"""Detects losses that must not change the weights: not finite, or far above recent losses.

Only the losses of accepted steps count as recent. If refused losses counted too, a loss that jumps
and stays high would raise its own limit and be accepted after a few steps.

The limit of a step is known before it, so that the device can refuse a loss without asking the
host: `factor` gives what the loss is multiplied by. The host reads the loss later and names the
reason by `fault`. Both use the same limit and double precision, so they never disagree.
"""

import math
import statistics

import torch
from torch import Tensor

DROPPED_AT_MOST = 5  # consecutive dropped steps; one more means that training has diverged
WINDOW = 100  # number of recent losses that a new one is compared with
LEAST = 50  # with fewer recent losses, every finite loss is accepted
SIGMAS = 6.0  # margin above the mean, in standard deviations
LEAST_RISE = 0.01  # smallest margin, as a share of the mean: rounding alone is no spike


def limit(recent: list[float]) -> float:
    """Return the highest acceptable loss after these; infinity if they are too few to judge."""
    if len(recent) < LEAST:
        return math.inf
    mean = statistics.fmean(recent)
    return mean + max(SIGMAS * statistics.pstdev(recent), LEAST_RISE * abs(mean))


def fault(loss: float, highest: float) -> str | None:
    """Return why a step with this loss must be dropped; None if it may change the weights."""
    if not math.isfinite(loss):
        return "the loss is not finite"
    return f"the loss {loss:.4g} is beyond {highest:.4g}" if loss > highest else None


def factor(loss: Tensor, highest: float) -> Tensor:
    """Return 1 for an acceptable loss, NaN for any other, on the loss's device.

    A loss times NaN has a gradient that is not finite, and every engine skips such an update.
    """
    accepted = torch.isfinite(loss) & (loss <= highest)
    return torch.where(accepted, 1.0, math.nan)


def remember(loss: float, recent: list[float]) -> list[float]:
    """Return `recent` with the loss of an accepted step appended, cut to `WINDOW` losses."""
    return [*recent, loss][-WINDOW:]
