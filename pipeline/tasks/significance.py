"""Decide whether two sets of scores over seeds differ by more than chance.

The test is a two-sided t-test at LEVEL: Student's, with the pooled variance, for equally many
seeds; otherwise Welch's with the degrees of freedom of the smaller set, since pooling misleads
where the smaller set varies more. Fewer than SEEDS seeds have no verdict: if a training ends in one
of two places, two seeds each agree by chance in one case of eight.

The t-test is exact for normal scores of equal deviation only. At a level of 0.5 % it errs in at
most 5 % of cases without a difference also for skewed and discrete scores and for deviations that
differ by a factor of 4, and for equally distributed scores around two values (simulated by
tests/pipeline/tasks/test_significance.py, 3 to 10 seeds). It is not paired, although seeds draw the
same labels for both: a paired test has half the degrees of freedom, and with three seeds finds a
quarter as many differences of five deviations, if both sets vary independently. It does not cover
rare training failures that no observed seed shows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

LEVEL = 0.005
ALLOWED_ERRORS = 0.05  # of the cases without a difference
SEEDS = 3  # fewest per set


@dataclass(frozen=True)
class Sample:
    """Scores over seeds."""

    values: Sequence[float]
    resolution: float = 0.0  # smallest difference that a score can show; 0 = continuous

    @property
    def variance(self) -> float:
        """Variance over seeds, plus the rounding variance of one step (resolution²/12).

        Without the latter, equal scores of a small test set would have no deviation at all, and any
        difference to another set would be clear.
        """
        mean = fmean(self.values)
        squares = sum((value - mean) ** 2 for value in self.values)
        return squares / (len(self.values) - 1) + self.resolution**2 / 12


def is_clear(first: Sample, second: Sample, comparisons: int = 1) -> bool | None:
    """Return True if the means differ clearly, and None if a sample has fewer than SEEDS values.

    `comparisons`: number of comparisons made at once; each is tested at LEVEL / comparisons
    (Bonferroni), so that LEVEL holds for all together.
    """
    from scipy.special import stdtr  # takes 0.2 s to import, and every command imports this file

    n, m = len(first.values), len(second.values)
    if min(n, m) < SEEDS:
        return None
    difference = abs(fmean(first.values) - fmean(second.values))
    squared_error = first.variance / n + second.variance / m  # pooled, if n = m
    if not squared_error or not difference:
        return bool(difference)
    freedom = n + m - 2 if n == m else min(n, m) - 1
    return bool(2 * stdtr(freedom, -difference / math.sqrt(squared_error)) < LEVEL / comparisons)
