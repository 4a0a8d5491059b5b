"""Words of a text and the pieces that a tokenizer makes of the whole text, matched by characters.

P pieces, W words
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Alignment:
    """The pieces of a text, and which of them its words have."""

    ids: NDArray[np.int32]  # [P]
    bounds: Ints  # [W + 1]: word w has the pieces bounds[w] to bounds[w + 1] to itself, maybe none
    firsts: Ints  # [W]: the first piece with a character of the word; words may share one
    stands_apart: NDArray[np.bool_]  # [W]: whether the word shares no piece with those before it

    def between(self, first: int, last: int) -> "Alignment":
        """The pieces of words `first` to `last` (excluded), a shared one at the start included."""
        begin = min(int(self.firsts[first]), int(self.bounds[first]))
        bounds = self.bounds[first : last + 1] - begin
        bounds[0] = 0
        stands_apart = self.stands_apart[first:last].copy()
        stands_apart[0] = True
        return Alignment(
            self.ids[begin : int(self.bounds[last])],
            bounds,
            self.firsts[first:last] - begin,
            stands_apart,
        )


def align(
    ids: NDArray[np.int32], piece_characters: Ints, word_characters: Ints, unknown: int
) -> Alignment:
    """Match pieces [P, 2] and words [W, 2] by their first characters and those past the last.

    A piece goes to the first word that it has a character of. One without any, such as the mark
    of a space, goes to the word after it. A text without pieces has one unknown piece, so that
    every word has a piece.
    """
    words = len(word_characters)
    if not len(ids):
        ids, piece_characters = np.array([unknown], np.int32), np.zeros((1, 2), np.int64)
    # Normalising may give two pieces the same character; their order stays.
    begins, ends = np.maximum.accumulate(piece_characters, axis=0).T
    owners = np.minimum(np.searchsorted(word_characters[:, 1], begins, side="right"), words - 1)
    bounds = np.searchsorted(owners, np.arange(words + 1))
    bounds[0], bounds[-1] = 0, len(ids)
    starts = bounds[:-1]
    before = np.maximum(starts - 1, 0)
    has_own = bounds[1:] > starts
    is_shared = (starts > 0) & (ends[before] > word_characters[:, 0])
    firsts = np.where(is_shared | ~has_own, before, starts)
    stands_apart = has_own & ~is_shared & (starts > 0)
    stands_apart[0] = True
    return Alignment(ids, bounds, firsts, stands_apart)


def concatenate(parts: Sequence[Alignment]) -> Alignment:
    """The words and pieces of all parts, one after another."""
    sizes = np.array([len(part.ids) for part in parts], np.int64)
    moves = np.cumsum(sizes) - sizes
    bounds = [part.bounds[:-1] + move for part, move in zip(parts, moves, strict=True)]
    firsts = [part.firsts + move for part, move in zip(parts, moves, strict=True)]
    return Alignment(
        np.concatenate([np.zeros(0, np.int32), *(part.ids for part in parts)]),
        np.concatenate([*bounds, [sizes.sum()]]).astype(np.int64),
        np.concatenate([np.zeros(0, np.int64), *firsts]),
        np.concatenate([np.zeros(0, np.bool_), *(part.stands_apart for part in parts)]),
    )
