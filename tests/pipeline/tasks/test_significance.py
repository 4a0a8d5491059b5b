"""Verdicts over seeds: how often they err without a difference, and what they find with one."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from scipy import stats

from pipeline.tasks.significance import ALLOWED_ERRORS, LEVEL, Sample, is_clear

DRAWS = 2_000
Draw = Callable[[np.random.Generator, int], np.ndarray]
# Mean 0 each. The second entry is the resolution of the scale.
DISTRIBUTIONS: dict[str, tuple[Draw, float]] = {
    "normal": (lambda rng, n: rng.normal(size=n), 0.0),
    "uniform": (lambda rng, n: rng.uniform(-2, 2, n), 0.0),
    "skewed": (lambda rng, n: rng.exponential(size=n) - 1, 0.0),
    "skewed down": (lambda rng, n: 1 - rng.exponential(size=n), 0.0),
    "heavy tail": (lambda rng, n: rng.lognormal(0, 0.7, n) - np.exp(0.245), 0.0),
    "rounded to a deviation": (lambda rng, n: np.round(rng.normal(size=n)), 1.0),
    "small counts": (lambda rng, n: rng.poisson(1, n) - 1.0, 1.0),
    "two values": (lambda rng, n: rng.integers(0, 2, n) - 0.5, 1.0),
}
SIZES = [*((n, n) for n in range(2, 11)), (2, 10), (3, 5), (5, 10), (10, 3)]


def sample(values: np.ndarray, resolution: float = 0.0, has_seeds: bool = False) -> Sample:
    seeds = tuple(range(len(values))) if has_seeds else ()
    return Sample(tuple(values.tolist()), seeds, resolution)


def error_rate(name: str, sizes: tuple[int, int], scale: float, has_seeds: bool) -> float:
    """The share of wrong verdicts about samples of equal mean, the first `scale` times as wide."""
    draw, resolution = DISTRIBUTIONS[name]
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(DRAWS):
        first, second = scale * draw(rng, sizes[0]), draw(rng, sizes[1])
        pair = sample(first, scale * resolution, has_seeds), sample(second, resolution, has_seeds)
        wrong += bool(is_clear(*pair))
    return wrong / DRAWS


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_without_a_difference_at_most_one_verdict_in_twenty_is_wrong(name: str) -> None:
    for sizes, scale in product(SIZES, (1.0, 4.0)):
        ways = (False, True) if sizes[0] == sizes[1] else (False,)
        for has_seeds in ways:
            rate = error_rate(name, sizes, scale, has_seeds)
            assert rate <= ALLOWED_ERRORS, (sizes, scale, has_seeds)


def test_the_former_rule_erred_as_the_review_says() -> None:
    """Intervals of one deviation that do not overlap: 21.6 % with two seeds, 8.3 % with three."""
    rng = np.random.default_rng(0)
    for seeds, expected in ((2, 0.216), (3, 0.083)):
        first, second = rng.normal(size=(2, 20_000, seeds))
        beyond = np.abs(first.mean(1) - second.mean(1)) > first.std(1, ddof=1) + second.std(
            1, ddof=1
        )
        assert beyond.mean() == pytest.approx(expected, abs=0.01)


def test_a_difference_of_many_deviations_is_found_from_three_seeds_on() -> None:
    rng = np.random.default_rng(0)
    for seeds in (3, 5, 10):
        found = 0
        for _ in range(200):
            common = rng.normal(size=seeds)  # a seed draws the same labels for both
            first, second = common + 0.5 * rng.normal(size=(2, seeds))
            found += bool(is_clear(sample(first + 8, 0, True), sample(second, 0, True)))
        assert found > 150, seeds


def test_p_values_are_those_of_scipy() -> None:
    rng = np.random.default_rng(0)
    outcomes = set()
    for _ in range(300):
        first, second = rng.normal(size=(2, 6))
        first += 2.5
        expected = stats.ttest_rel(first, second).pvalue < LEVEL
        assert is_clear(sample(first, 0, True), sample(second, 0, True)) == expected
        outcomes.add(bool(expected))
    assert outcomes == {True, False}


def test_pairs_are_found_by_seed_and_not_by_place() -> None:
    values, higher = (0.1, 0.5, 0.9), (0.2, 0.6, 1.0)
    ours = Sample(values, (1, 2, 3), 0.001)
    assert is_clear(ours, Sample(higher, (1, 2, 3), 0.001))
    assert is_clear(ours, Sample(higher[::-1], (3, 2, 1), 0.001))
    assert is_clear(ours, Sample(higher, (4, 5, 6), 0.001)) is False


def test_equal_values_are_judged_by_the_resolution_of_the_scale() -> None:
    """On 100 examples one more right answer is no difference; on a continuous scale it is one."""
    assert is_clear(Sample((0.71, 0.71), (), 0.01), Sample((0.72, 0.72), (), 0.01)) is False
    assert is_clear(Sample((0.71, 0.71)), Sample((0.72, 0.72))) is True
    assert is_clear(Sample((0.71, 0.71)), Sample((0.71, 0.71))) is False


def test_one_seed_has_no_verdict_and_many_comparisons_need_more() -> None:
    assert is_clear(Sample((0.9,)), Sample((0.1, 0.2, 0.3))) is None
    first, second = Sample((0.70, 0.72, 0.71, 0.73)), Sample((0.60, 0.65, 0.62, 0.64))
    assert is_clear(first, second) is True
    assert is_clear(first, second, comparisons=100) is False
