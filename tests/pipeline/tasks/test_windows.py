"""Windows hold every word, fit, and keep to their stride."""

from itertools import pairwise

import numpy as np

from pipeline.encoders import WordUnits
from pipeline.tasks.windows import cut_windows


def apart(*units: int) -> WordUnits:
    """Words of so many units that share none."""
    return WordUnits(np.array(units), np.ones(len(units), np.bool_))


def test_windows_hold_all_words_and_fit() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        units = rng.integers(1, 6, size=rng.integers(1, 60))
        room = int(rng.integers(5, 40))
        for stride in (None, 1, 7, 100):
            windows = cut_windows(apart(*units), room, stride)
            assert windows[0][0] == 0
            assert windows[-1][1] == len(units)
            assert all(units[a:b].sum() <= room for a, b in windows)
            assert all(a < c <= b <= d for (a, b), (c, d) in pairwise(windows))
            if stride is None:
                assert all(b == c for (_, b), (c, _) in pairwise(windows))


def test_windows_begin_a_stride_apart() -> None:
    ones = apart(*[1] * 10)
    assert cut_windows(ones, 4, 2) == [(0, 4), (2, 6), (4, 8), (6, 10)]
    assert cut_windows(ones, 4) == [(0, 4), (4, 8), (8, 10)]
    assert cut_windows(ones, 10, 2) == [(0, 10)]
    assert cut_windows(apart(2, 2, 2, 2), 4, 3) == [(0, 2), (2, 4)]


def test_a_word_that_does_not_fit_is_a_window_of_its_own() -> None:
    assert cut_windows(apart(1, 9, 1), 4) == [(0, 1), (1, 2), (2, 3)]
    assert cut_windows(apart(9), 4, 2) == [(0, 1)]


def test_windows_never_begin_at_a_word_that_shares_a_unit() -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        units = rng.integers(0, 3, size=rng.integers(1, 60))
        may_begin = (rng.random(len(units)) < 0.6) & (units > 0)
        may_begin[0] = True
        for stride in (None, 1, 7):
            windows = cut_windows(WordUnits(units, may_begin), 8, stride)
            assert (windows[0][0], windows[-1][1]) == (0, len(units))
            assert all(may_begin[first] for first, _ in windows)
            assert all(b == len(units) or may_begin[b] for _, b in windows)
            for first, last in windows:
                assert units[first:last].sum() <= 8 or may_begin[first + 1 : last].sum() == 0
