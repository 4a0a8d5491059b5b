"""Decide whether two sets of scores over seeds differ by more than chance.

The test is a two-sided t-test at LEVEL: paired if both sets have the same seeds, else Welch's with
the degrees of freedom of the smaller set. It assumes that seeds are independent draws.

The t-test is exact for normal scores only. At a level of 1 % it errs in at most 5 % of cases
without a difference also for skewed scores, discrete scores, and deviations that differ by a factor
of 4 (simulated by tests/pipeline/tasks/test_significance.py, 2 to 10 seeds). It does not cover
seeds that fail entirely and so rarely that none of the given ones did.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import fmean

LEVEL = 0.01
ALLOWED_ERRORS = 0.05  # of the cases without a difference


@dataclass(frozen=True)
class Sample:
    """Scores over seeds."""

    values: tuple[float, ...]
    seeds: tuple[Hashable, ...] = ()  # one per value; empty if they are not known
    resolution: float = 0.0  # smallest difference that a score can show; 0 = continuous


def is_clear(first: Sample, second: Sample, comparisons: int = 1) -> bool | None:
    """Return True if the means differ clearly, and None if a sample has fewer than two values.

    `comparisons`: number of comparisons made at once; each is tested at LEVEL / comparisons
    (Bonferroni), so that LEVEL holds for all together.
    """
    from scipy.special import stdtr  # takes 0.2 s to import, and every command imports this file

    if min(len(first.values), len(second.values)) < 2:
        return None
    squared_error, freedom = _paired(first, second) or _separate(first, second)
    difference = abs(fmean(first.values) - fmean(second.values))
    if not squared_error or not difference:
        return bool(difference)
    t = difference / math.sqrt(squared_error)
    return bool(2 * stdtr(freedom, -t) < LEVEL / comparisons)


def _paired(first: Sample, second: Sample) -> tuple[float, int] | None:
    """Return the squared standard error and the degrees of freedom; None without equal seeds."""
    if not first.seeds or set(first.seeds) != set(second.seeds):
        return None
    other = dict(zip(second.seeds, second.values, strict=True))
    differences = [
        value - other[seed] for seed, value in zip(first.seeds, first.values, strict=True)
    ]
    rounding = _rounding(first) + _rounding(second)
    return (_variance(differences) + rounding) / len(differences), len(differences) - 1


def _separate(first: Sample, second: Sample) -> tuple[float, int]:
    squared_error = sum(
        (_variance(each.values) + _rounding(each)) / len(each.values) for each in (first, second)
    )
    return squared_error, min(len(first.values), len(second.values)) - 1


def _rounding(sample: Sample) -> float:
    """Return the variance of a value inside its step of the scale.

    Without it, two equal scores of a small test set would have no deviation at all, and any
    difference to another set would be clear.
    """
    return sample.resolution**2 / 12


def _variance(values: Sequence[float]) -> float:
    mean = fmean(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)
