"""Align the words of a text with the tokens of the whole text, by characters.

P tokens, W words
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Alignment:
    """The tokens of a text, and the tokens that belong to each word."""

    ids: NDArray[np.int32]  # [P]
    bounds: Ints  # [W + 1] word w owns the tokens bounds[w] to bounds[w + 1], possibly none
    firsts: Ints  # [W] first token with a character of the word; words may share a token
    stands_apart: NDArray[np.bool_]  # [W] True if the word shares no token with words before it

    def between(self, first: int, last: int) -> "Alignment":
        """Return the alignment of words [first, last); a shared token at the start is included."""
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
    """Align tokens and words by their character ranges: start, end (excluded).

    ids: [P]; piece_characters: [P, 2]; word_characters: [W, 2]; unknown: id of the unknown token.
    A token belongs to the first word with which it shares a character. A token without a word's
    character, such as a space mark, belongs to the word after it. A text without tokens gets one
    unknown token, so that every word has a first token.
    """
    words = len(word_characters)
    if not len(ids):
        ids, piece_characters = np.array([unknown], np.int32), np.zeros((1, 2), np.int64)
    # Normalisation may map two tokens to the same character; the running maximum keeps the order.
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


def separable_parts(text: str, piece_characters: Ints) -> Ints:
    """Return the character ranges of a text that tokens tell apart: [parts, 2], in order.

    A part is the characters of one token, without white space. Tokens that share a character, as
    bytes do, have one part.
    """
    parts: list[list[int]] = []
    for begin, end in np.maximum.accumulate(piece_characters, axis=0).tolist():
        piece = text[begin:end]
        start = begin + len(piece) - len(piece.lstrip())
        last = start + len(piece.strip())
        if parts and start < parts[-1][1]:
            parts[-1][1] = max(last, parts[-1][1])
        elif start < last:
            parts.append([start, last])
    return np.array(parts, np.int64).reshape(-1, 2)


def concatenate(parts: Sequence[Alignment]) -> Alignment:
    """Concatenate the words and tokens of all parts."""
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
