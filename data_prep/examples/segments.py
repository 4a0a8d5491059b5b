"""Data types of pair building: a tokenized text, its examples, and their random segments.

S sentences, N sections, E examples, R examples with a random second segment
"""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from data_prep.corpus.shard_format import section_names

Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]
Flags = NDArray[np.bool_]

NEXT, OTHER, NO_PAIR = 0, 1, -1  # pair labels; 0 and 1 as in Hugging Face's BERT


@dataclass(frozen=True)
class Text:
    """The tokenized sections of one part of a shard, as flat arrays."""

    ids: NDArray[np.unsignedinteger]  # [tokens] of all sentences; compact marked ids (`word_marks`)
    sentences: Ints  # [S+1] offsets into ids; no sentence is empty
    sections: Ints  # [N+1] offsets into sentences
    documents: Ints  # [N] document number of each section
    numbers: Ints  # [N] section number in its document
    groups: Ints  # [N] group number (`text.group_number`); random segments come from other groups
    strata: Ints  # [N] number of the named source; random segments come from the same one
    is_used: NDArray[np.bool_]  # [N] False: the section gives no examples

    @property
    def names(self) -> Ints:
        """Section ids [N], unique in the whole corpus."""
        names: Ints = section_names(self.documents, self.numbers)
        return names


@dataclass(frozen=True)
class Cuts:
    """The examples of a text before random segments are added: sentence numbers, per example.

    Segment A is sentences [start, split). Segment B is sentences [split, stop), or random.
    """

    section: Ints  # [E]
    start: Ints  # [E]
    split: Ints  # [E]
    stop: Ints  # [E]
    target: Ints  # [E] target length in tokens
    is_random: NDArray[np.bool_]  # [E]
    is_lone: NDArray[np.bool_]  # [E] a sentence without a neighbour: random without a coin

    def openings(self) -> Ints:
        """Return the sentence at which each random example leaves off [R].

        That is where its second segment would have started, or its only sentence. These are the
        sentences at which the random segments of other examples start.
        """
        return np.where(self.is_lone, self.start, self.split)[self.is_random]


@dataclass(frozen=True)
class Partners:
    """Random second segments: one per random example [R], in the order of the examples."""

    ids: NDArray[np.unsignedinteger]  # [tokens], as those of `Text`
    sentences: Ints  # offsets into ids
    start: Ints  # [R] first sentence of the segment
    end: Ints  # [R] one past the last sentence it may contain
    documents: Ints  # [R] document number


@dataclass(frozen=True)
class Spans:
    """Examples as token ranges: segment A in `Text.ids`, segment B there or in `Partners.ids`.

    Segment B is a partner's where the two documents differ.
    """

    bounds: Ints  # [E, 4] start and end of A, start and end of B (B is empty without a pair)
    label: NDArray[np.int8]  # [E] NEXT, OTHER or NO_PAIR
    coin: NDArray[np.int8]  # [E] 1 if a random draw decided the label, 0 if it was forced
    documents: Ints  # [E, 2] document numbers of A and B

    @property
    def lengths(self) -> Ints:
        """Tokens per example [E], including [CLS] and [SEP]."""
        first, first_end, second, second_end = self.bounds.T
        lengths: Ints = first_end - first + second_end - second
        return lengths + np.where(second == second_end, 2, 3)

    def take(self, order: Ints) -> "Spans":
        """Return the examples with these indices, in this order."""
        return Spans(*(getattr(self, item.name)[order] for item in fields(self)))


@dataclass(frozen=True)
class Discarded:
    """Counts of what did not fit into examples."""

    truncated: int  # examples whose segments were truncated
    truncated_pieces: int  # tokens removed by truncation
    dropped: int  # lone one-token sentences, which sentence order cannot split
    cut: int  # sentences longer than a row, which full sentences split over several rows
