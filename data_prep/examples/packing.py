"""Several examples in one row, so that little of a row is padding.

Best fit, decreasing (Krell et al. 2021 for BERT): the longest example first, each into the
fullest row that still has room for it. Examples meet only inside a window of the sequence they
come in, so a row holds neighbours of the corpus and the work stays linear.
"""

# mypy: disallow-untyped-decorators=False

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def pack(lengths: Ints, room: int, window: int) -> tuple[Ints, Ints]:
    """Put examples of these lengths into rows of `room` pieces: (order, offsets of rows in it)."""
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
    """For each example the first (by number) of the examples that share its row."""
    # Rows with equally much room left form a stack: `top` by room left, `below` by row.
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
