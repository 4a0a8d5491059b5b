"""Encoder inputs: sentences or words as flat, unpadded units, and batches of them.

A unit is what the encoder reads: a token (BERT) or a word (ELMo, static vectors). The first unit of
a word represents the word.

N units of a batch, E inputs, P parts of an input (one sentence or two), W words
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.data.device import send

Ints = NDArray[np.int64]
# Words of a sentence. A tuple: words separated by single spaces, as in CoNLL files. A
# `data_prep.text.words.TextWords`: words with their positions in a text. Both are hashable.
Words = Sequence[str]


@dataclass(frozen=True)
class WordUnits:
    """Units per word, and the words at which an input may begin; sentence after sentence.

    Words may share a unit. It counts for the first of them, and no input may begin at the others.
    """

    units: Ints  # [W]
    may_begin: NDArray[np.bool_]  # [W]

    def split(self, lengths: Sequence[int]) -> "list[WordUnits]":
        """Split into one WordUnits per sentence; `lengths` are the sentences' word counts."""
        ends = np.cumsum(lengths)[:-1]
        parts = zip(np.split(self.units, ends), np.split(self.may_begin, ends), strict=True)
        return [WordUnits(*part) for part in parts]


@dataclass(frozen=True)
class InContext:
    """A sentence, or a window of one, among words around it."""

    words: Words
    first: int  # the sentence's first word in `words`
    count: int  # words of the sentence


@dataclass(frozen=True)
class InputBatch:
    """A flat batch of encoded inputs, as an encoder's forward takes it."""

    tokens_N: Tensor
    positions_N: Tensor
    segments_N: Tensor
    lengths: Ints  # [E] units per input; on the host
    second: Ints  # [E] position in the input where the second sentence starts; on the host
    word_starts_W: Tensor  # index into N of each word's first unit; empty for plain texts
    word_counts: Ints  # [E] words per input; on the host

    @property
    def firsts_E(self) -> Tensor:
        """Index into N of each input's first unit."""
        return send(np.cumsum(self.lengths) - self.lengths, self.tokens_N.device)

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
    """All inputs of a data set as units, one after another; immutable."""

    tokens: NDArray[np.int32]  # [units of all inputs]
    offsets: Ints  # [E + 1]: input e has tokens[offsets[e] : offsets[e + 1]]
    second: Ints  # [E] position in the input where the second sentence starts
    word_starts: Ints  # [words of all inputs]: position of each word's first unit in its input
    word_offsets: Ints  # [E + 1]: input e has word_starts[word_offsets[e] : word_offsets[e + 1]]
    truncated: Ints  # [E] 1 if the input was truncated, for a pair in two parts the parts that were

    @property
    def cut(self) -> int:
        """Number of truncated inputs; a pair in two parts counts as two."""
        return int(self.truncated.sum())

    @cached_property
    def lengths(self) -> Ints:
        """[E] units per input."""
        return np.diff(self.offsets)

    @cached_property
    def word_counts(self) -> Ints:
        """[E] words per input, without words that did not fit."""
        return np.diff(self.word_offsets)

    def batch(self, rows: Ints) -> InputBatch:
        """Return the inputs `rows`, in this order."""
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
    """Return the indices of all runs, one after another, and each index's position in its run.

    Run i has the indices starts[i] to starts[i] + lengths[i] - 1.
    """
    positions = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return np.repeat(starts, lengths) + positions, positions


def offsets_of(lengths: Sequence[int] | Ints) -> Ints:
    """Return the offsets [runs + 1] of successive runs of these lengths."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def kept_lengths(lengths_EP: Ints, room: int) -> Ints:
    """Return the units [E, P] to keep of each part, at most `room` per input.

    Units are removed from the longer part first.
    """
    if lengths_EP.shape[1] == 1:
        return np.minimum(lengths_EP, room)
    a_E, b_E = lengths_EP.T
    b_E = np.minimum(b_E, np.maximum(room - a_E, room // 2))
    return np.stack([np.minimum(a_E, room - b_E), b_E], 1)


def truncated_inputs(kept_EP: Ints, sizes_EP: Ints) -> Ints:
    """Return 1 for each input that has parts of which less was kept than there is, else 0."""
    return np.asarray((kept_EP < sizes_EP).any(1), np.int64)


def fitting_words(offsets: Ints, counts_EP: Ints, room: int) -> tuple[Ints, Ints]:
    """Return the words [E, P] of each part that fit into `room` units, and its maximum units.

    `offsets`: unit offsets of all words of all parts of all inputs, one after another.
    `counts_EP`: words per part. A part always keeps its first word, truncated if necessary.
    """
    firsts_EP = starts_of(counts_EP)
    begins_EP = offsets[firsts_EP]
    most_EP = kept_lengths(offsets[firsts_EP + counts_EP] - begins_EP, room)
    fitting_EP = np.searchsorted(offsets, begins_EP + most_EP, side="right") - 1 - firsts_EP
    return np.clip(fitting_EP, 1, np.maximum(counts_EP, 1)), most_EP


def starts_of(sizes_EP: Ints) -> Ints:
    """Return where each part of each input begins [E, P], if all parts lie one after another."""
    return sizes_EP.cumsum().reshape(sizes_EP.shape) - sizes_EP


def part_sizes(inputs: Sequence[Sequence[Sequence[str]]]) -> Ints:
    """Return the words per part, [E, P]. All inputs must have the same number of parts."""
    parts = len(inputs[0]) if inputs else 1
    sizes = [len(words) for words_of_parts in inputs for words in words_of_parts]
    return np.array(sizes, np.int64).reshape(-1, parts)
