"""Which losses must not change the weights: those that are not finite, or far above recent ones.

Recent losses are those of accepted steps. A loss that was refused does not enter them: otherwise a
loss that jumps for good would widen its own limit and be accepted after a few steps.
"""

import math
import statistics

WINDOW = 100  # recent losses a new one is measured against
LEAST = 50  # fewer tell too little
SIGMAS = 6.0
LEAST_RISE = 0.01  # of the mean: where losses hardly vary, rounding is no spike


def fault(loss: float, recent: list[float]) -> str | None:
    """Why a step with this loss must be dropped; None if it may change the weights."""
    if not math.isfinite(loss):
        return "the loss is not finite"
    if len(recent) < LEAST:
        return None
    mean = statistics.fmean(recent)
    limit = mean + max(SIGMAS * statistics.pstdev(recent), LEAST_RISE * abs(mean))
    return f"the loss {loss:.4g} is beyond {limit:.4g}" if loss > limit else None


def remember(loss: float, recent: list[float]) -> list[float]:
    """The recent losses after an accepted step."""
    return [*recent, loss][-WINDOW:]
