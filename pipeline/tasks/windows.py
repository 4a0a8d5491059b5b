"""Cut long texts into windows that fit into an encoder."""

import numpy as np
from numpy.typing import NDArray

from pipeline.encoders import WordUnits

Ints = NDArray[np.int64]


def cut_windows(taken: WordUnits, room: int, stride: int | None = None) -> list[tuple[int, int]]:
    """Return windows (first word, one past the last) of at most `room` units that cover all words.

    A window begins `stride` units after the start of the previous one; without `stride`, at its
    end. It begins only at a word that shares no unit with the word before. Words that share a unit
    and do not fit into `room` form a window of their own.
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
