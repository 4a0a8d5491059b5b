"""Long texts as windows that fit into an encoder."""

import numpy as np
from numpy.typing import NDArray

from pipeline.encoders import WordUnits

Ints = NDArray[np.int64]


def cut_windows(taken: WordUnits, room: int, stride: int | None = None) -> list[tuple[int, int]]:
    """Runs of words, as first and one past the last, that fit into `room` units and hold them all.

    A window begins `stride` units after the one before, or where that ends, and only at a word
    that shares no unit with the one before. Words that cannot be parted and do not fit are a
    window of their own.
    """
    begins = np.flatnonzero(taken.may_begin)
    cuts = np.append(begins, len(taken.units))
    windows = _cut(np.add.reduceat(taken.units, begins), room, stride)
    return [(int(cuts[first]), int(cuts[last])) for first, last in windows]


def _cut(units: Ints, room: int, stride: int | None) -> list[tuple[int, int]]:
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
