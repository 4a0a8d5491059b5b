"""Pack several examples into one row, to reduce padding.

Best-fit decreasing (Krell et al. 2021 for BERT): longest example first, each into the fullest row
that still has room. Only examples of the same window (successive examples of the corpus) are
packed together, so the work is linear in the number of examples.
"""

# mypy: disallow-untyped-decorators=False

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def pack(lengths: Ints, room: int, window: int) -> tuple[Ints, Ints]:
    """Pack examples into rows of at most `room` tokens.

    lengths: tokens per example [E]. window: number of examples that are packed together.
    Returns the examples in row order [E], and the offsets of the rows in that order [R+1].
    """
    rows = np.empty(len(lengths), np.int64)
    for start in range(0, len(lengths), window):
        part = slice(start, start + window)
        longest_first = np.argsort(-lengths[part], kind="stable")
        rows[part] = start + _best_fit(lengths[part], longest_first, room)
    order = np.argsort(rows, kind="stable")
    starts = np.flatnonzero(np.diff(rows[order], prepend=-1))
    return order, np.append(starts, len(lengths))


@njit(cache=True)
def _best_fit(lengths: Any, longest_first: Any, room: Any) -> Any:
    """Return, per example, the smallest example number in its row; it serves as row id."""
    # Rows with the same room left form a linked stack: `top` [room left], `below` [row].
    top = np.full(room + 1, -1, np.int64)
    below = np.empty(len(lengths), np.int64)
    row_of = np.empty(len(lengths), np.int64)
    count = 0
    for example in longest_first:
        left = lengths[example]
        while left <= room and top[left] < 0:
            left += 1
        if left <= room:
            row = top[left]
            top[left] = below[row]
        else:
            row, left = count, room
            count += 1
        row_of[example] = row
        left -= lengths[example]
        below[row] = top[left]
        top[left] = row
    names = np.full(count, len(lengths), np.int64)
    for example in range(len(lengths)):
        names[row_of[example]] = min(names[row_of[example]], example)
    for example in range(len(lengths)):
        row_of[example] = names[row_of[example]]
    return row_of
