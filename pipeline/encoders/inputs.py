"""What encoders read: sentences or words as units, flat and unpadded, in any choice of batches.

A unit is what the encoder reads: a token (BERT) or a word (ELMo, static vectors). A word is known
by its first unit.

N units of a batch, E inputs, P parts of an input (one sentence or two), W words
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Ints = NDArray[np.int64]
EVALUATION_UNITS = 2048  # of a batch without gradients: states of so many stay in the caches
# Words of a sentence: a tuple means words with a space between any two, as in CoNLL files; a
# `data_prep.text.words.TextWords` knows the text they stand in. Both can be hashed.
Words = Sequence[str]


@dataclass(frozen=True)
class WordUnits:
    """How many units words take, and where an input may begin; sentence after sentence.

    Words may share a unit: it counts for the first of them, and an input may not begin at another.
    """

    units: Ints  # [W]
    may_begin: NDArray[np.bool_]  # [W]

    def split(self, lengths: Sequence[int]) -> "list[WordUnits]":
        """Those of each sentence, by its number of words."""
        ends = np.cumsum(lengths)[:-1]
        parts = zip(np.split(self.units, ends), np.split(self.may_begin, ends), strict=True)
        return [WordUnits(*part) for part in parts]


@dataclass(frozen=True)
class InputBatch:
    """Some encoded inputs, flat: what an encoder's forward takes."""

    tokens_N: Tensor
    positions_N: Tensor
    segments_N: Tensor
    lengths: Ints  # units of each input, on the host
    second: Ints  # position in each input where the second sentence starts, on the host
    word_starts_W: Tensor  # index into N of each word's first unit; empty for plain texts
    word_counts: Ints  # words of each input, on the host

    def to(self, device: torch.device) -> "InputBatch":
        """The same batch on another device."""
        return replace(
            self,
            tokens_N=self.tokens_N.to(device),
            positions_N=self.positions_N.to(device),
            segments_N=self.segments_N.to(device),
            word_starts_W=self.word_starts_W.to(device),
        )


@dataclass(frozen=True)
class EncodedInputs:
    """Many inputs as units, one after another; words are known by their first unit."""

    tokens: NDArray[np.int32]
    offsets: Ints  # of inputs into tokens
    second: Ints  # position in each input where the second sentence starts
    word_starts: Ints  # positions inside the input
    word_offsets: Ints  # of inputs into word_starts
    cut: int  # inputs that were too long and lost units or words

    @cached_property
    def lengths(self) -> Ints:
        """Units of each input."""
        return np.diff(self.offsets)

    @cached_property
    def word_counts(self) -> Ints:
        """Words of each input that fit in."""
        return np.diff(self.word_offsets)

    def batch(self, rows: Ints) -> InputBatch:
        """The chosen inputs, in the order of `rows`."""
        lengths, word_counts = self.lengths[rows], self.word_counts[rows]
        units, positions = runs(self.offsets[rows], lengths)
        words, _ = runs(self.word_offsets[rows], word_counts)
        starts = np.cumsum(lengths) - lengths
        return InputBatch(
            torch.from_numpy(self.tokens[units].astype(np.int64)),
            torch.from_numpy(positions),
            torch.from_numpy((positions >= np.repeat(self.second[rows], lengths)).astype(np.int64)),
            lengths,
            np.minimum(self.second[rows], lengths),
            torch.from_numpy(self.word_starts[words] + np.repeat(starts, word_counts)),
            word_counts,
        )


def runs(starts: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """Indices of successive runs, and each index's position inside its run."""
    positions = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return np.repeat(starts, lengths) + positions, positions


def offsets_of(lengths: Sequence[int] | Ints) -> Ints:
    """Where runs of these lengths begin and end."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def kept_lengths(lengths_EP: Ints, room: int) -> Ints:
    """How much of each part is kept where not all fit: units go from the longer part first."""
    if lengths_EP.shape[1] == 1:
        return np.minimum(lengths_EP, room)
    a_E, b_E = lengths_EP.T
    b_E = np.minimum(b_E, np.maximum(room - a_E, room // 2))
    return np.stack([np.minimum(a_E, room - b_E), b_E], 1)


def fitting_words(offsets: Ints, counts_EP: Ints, room: int) -> tuple[Ints, Ints]:
    """How many words of each part are kept in `room` units, and how many units of each at most.

    The words of all parts of all inputs lie one after another; `offsets` has where their units
    begin and end. A part's first word stays, cut if it must be, so that every part has one.
    """
    firsts_EP = starts_of(counts_EP)
    begins_EP = offsets[firsts_EP]
    most_EP = kept_lengths(offsets[firsts_EP + counts_EP] - begins_EP, room)
    fitting_EP = np.searchsorted(offsets, begins_EP + most_EP, side="right") - 1 - firsts_EP
    return np.clip(fitting_EP, 1, np.maximum(counts_EP, 1)), most_EP


def starts_of(sizes_EP: Ints) -> Ints:
    """Where each part of each input begins when all of them lie one after another."""
    return sizes_EP.cumsum().reshape(sizes_EP.shape) - sizes_EP


def part_sizes(inputs: Sequence[Sequence[Sequence[str]]]) -> Ints:
    """Words of each part of each input, [E, P]: all inputs have one part, or all have two."""
    parts = len(inputs[0]) if inputs else 1
    sizes = [len(words) for words_of_parts in inputs for words in words_of_parts]
    return np.array(sizes, np.int64).reshape(-1, parts)


def evaluation_order(lengths: Ints) -> list[Ints]:
    """All rows from the longest on, in batches of about as many units."""
    order = np.argsort(-lengths, kind="stable")
    number = (np.cumsum(lengths[order]) - 1) // EVALUATION_UNITS
    return np.split(order, np.flatnonzero(np.diff(number)) + 1)
