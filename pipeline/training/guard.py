"""Detects losses that must not change the weights: not finite, or far above recent losses.

Only the losses of accepted steps count as recent. If refused losses counted too, a loss that jumps
and stays high would raise its own limit and be accepted after a few steps.
"""

import math
import statistics

WINDOW = 100  # number of recent losses that a new one is compared with
LEAST = 50  # with fewer recent losses, every finite loss is accepted
SIGMAS = 6.0  # margin above the mean, in standard deviations
LEAST_RISE = 0.01  # smallest margin, as a share of the mean: rounding alone is no spike


def fault(loss: float, recent: list[float]) -> str | None:
    """Return why a step with this loss must be dropped; None if it may change the weights."""
    if not math.isfinite(loss):
        return "the loss is not finite"
    if len(recent) < LEAST:
        return None
    mean = statistics.fmean(recent)
    limit = mean + max(SIGMAS * statistics.pstdev(recent), LEAST_RISE * abs(mean))
    return f"the loss {loss:.4g} is beyond {limit:.4g}" if loss > limit else None


def remember(loss: float, recent: list[float]) -> list[float]:
    """Return `recent` with the loss of an accepted step appended, cut to `WINDOW` losses."""
    return [*recent, loss][-WINDOW:]
