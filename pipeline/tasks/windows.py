"""Long texts as windows that fit into an encoder."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def cut_windows(units: Ints, room: int, stride: int | None = None) -> list[tuple[int, int]]:
    """Runs of words, as first and one past the last, that fit into `room` units and hold them all.

    A window begins `stride` units after the one before, or where that ends. A single word that
    does not fit is a window of its own.
    """
    ends = np.concatenate([[0], np.cumsum(units)])
    windows: list[tuple[int, int]] = []
    first = 0
    while not windows or windows[-1][1] < len(units):
        last = max(first + 1, int(np.searchsorted(ends, ends[first] + room, side="right")) - 1)
        windows.append((first, last))
        if stride is None:
            first = last
        else:
            first = min(last, max(first + 1, int(np.searchsorted(ends, ends[first] + stride))))
    return windows
