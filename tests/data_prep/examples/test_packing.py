"""Packing: every example once, no row too long, best fit, inside its window."""

import itertools

import numpy as np
import pytest

from data_prep.examples.packing import pack


@pytest.mark.parametrize("window", [1, 7, 64, 1000])
def test_rows_hold_every_example_once_and_fit(window: int) -> None:
    lengths = np.random.default_rng(1).integers(3, 129, 500)
    order, rows = pack(lengths, 128, window)
    assert sorted(order.tolist()) == list(range(500))
    assert rows[0] == 0 and rows[-1] == 500
    filled = np.add.reduceat(lengths[order], rows[:-1])
    assert filled.max() <= 128
    for row in range(len(rows) - 1):
        members = order[rows[row] : rows[row + 1]]
        assert len(set((members // window).tolist())) == 1
        assert (np.diff(members) > 0).all()


def test_rows_are_filled_best_fit_decreasing() -> None:
    # 9 and 7 open rows; 4 goes where it leaves 0 (beside 7, not 9), 2 beside 9, 3 opens a row.
    order, rows = pack(np.array([2, 7, 3, 9, 4]), 11, 10)
    assert [order[a:b].tolist() for a, b in itertools.pairwise(rows)] == [
        [0, 3],
        [1, 4],
        [2],
    ]


def test_short_examples_leave_little_room() -> None:
    lengths = np.random.default_rng(2).integers(3, 100, 2048)
    _, rows = pack(lengths, 128, 1024)
    assert lengths.sum() / (128 * (len(rows) - 1)) > 0.97


def test_nothing_packs_into_nothing() -> None:
    order, rows = pack(np.zeros(0, np.int64), 128, 16)
    assert len(order) == 0 and rows.tolist() == [0]
