"""Which pieces of a text make an example: segment pairs as spans, before any piece is copied.

`next_sentence` builds pairs as Devlin et al. do (create_pretraining_data.py), `sentence_order` as
ALBERT, `full_sentences` as RoBERTa. All read a `Text` (ids of sentences of sections) and give
`Spans`. A section is to them what a document is to Devlin et al.: no example crosses its end.

Two things differ from the original script: the target length is drawn for every example instead
of once a document, which would make whole books short, and the random segment starts at any
sentence of the pool, never in the same document or in another one of its group.
"""

# mypy: disallow-untyped-decorators=False

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from data_prep.random import draw_below, draw_unit

Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]

NEXT, OTHER, NO_PAIR = 0, 1, -1  # labels, in Hugging Face's order


@dataclass(frozen=True)
class Text:
    """Sentences of sections, flat: S sentences, N sections."""

    ids: NDArray[np.unsignedinteger]  # pieces of all sentences, one after another
    sentences: Ints  # [S+1] offsets into ids; no sentence is empty
    sections: Ints  # [N+1] offsets into sentences
    documents: Ints  # [N] document number of each section
    numbers: Ints  # [N] the section's number in its document
    groups: Ints  # [N] what a random partner may not be of: a group, or a document without one
    weights: NDArray[np.float64]  # [N] expected copies of the section's document

    @property
    def names(self) -> Ints:
        """One number for each section, unlike that of any other section of the corpus."""
        return (self.documents << 20) + self.numbers

    def only(self, is_kept: NDArray[np.bool_]) -> "Text":
        """These sections alone."""
        in_kept = np.repeat(is_kept, np.diff(self.sections))
        lengths = np.diff(self.sentences)
        return Text(
            ids=self.ids[np.repeat(in_kept, lengths)],
            sentences=np.concatenate([[0], np.cumsum(lengths[in_kept])]),
            sections=np.concatenate([[0], np.cumsum(np.diff(self.sections)[is_kept])]),
            documents=self.documents[is_kept],
            numbers=self.numbers[is_kept],
            groups=self.groups[is_kept],
            weights=self.weights[is_kept],
        )


@dataclass(frozen=True)
class Pool:
    """Sentences that random segments start at, ordered by group: P sentences."""

    ids: NDArray[np.unsignedinteger]
    sentences: Ints  # [P+1] offsets into ids
    ends: Ints  # [P] the sentence at which the run that holds this one ends
    documents: Ints  # [P] document number
    groups: Ints  # [P] as in `Text`


@dataclass(frozen=True)
class Spans:
    """E examples as positions in `Text.ids`; random segments as positions in `Pool.ids`."""

    bounds: Ints  # [E, 4] start and end of a, start and end of b (empty without a pair)
    label: NDArray[np.int8]  # [E] NEXT, OTHER or NO_PAIR
    coin: NDArray[np.int8]  # [E] 1 where a coin decided the label
    documents: Ints  # [E, 2] of a and of b

    @property
    def lengths(self) -> Ints:
        """Pieces of each example, [CLS] and [SEP] included."""
        first, first_end, second, second_end = self.bounds.T
        lengths: Ints = first_end - first + second_end - second
        return lengths + np.where(second == second_end, 2, 3)

    def take(self, order: Ints) -> "Spans":
        """The same examples in another order."""
        return Spans(*(getattr(self, item.name)[order] for item in fields(self)))


@dataclass(frozen=True)
class Discarded:
    """What generation left out."""

    truncated: int  # examples whose segments were cut to fit
    truncated_pieces: int  # pieces cut from them
    dropped: int  # single-piece sections that sentence order cannot use
    cut: int  # sentences longer than a row that full sentences spread over several


def next_sentence(
    text: Text, pool: Pool, keys: Keys, limit: int, short: float
) -> tuple[Spans, Discarded]:
    """Pairs of at most `limit` pieces whose second segment is the next one or a random one.

    `keys` has a key for each section. A lone sentence gets a random partner whatever the coin.
    """
    own_first = np.searchsorted(pool.groups, text.groups, "left")
    own_end = np.searchsorted(pool.groups, text.groups, "right")
    size = len(text.sentences) - 1
    return _spans(*_next_sentence(
        text.sentences, text.sections, text.documents, pool.sentences, pool.ends, pool.documents,
        own_first, own_end, _streams(keys), limit, short, *_room(size),
    ))  # fmt: skip


def sentence_order(text: Text, keys: Keys, limit: int, short: float) -> tuple[Spans, Discarded]:
    """Pairs of neighbouring segments, swapped by a coin; a lone sentence is cut in its middle."""
    size = len(text.sentences) - 1
    return _spans(*_sentence_order(
        text.sentences, text.sections, text.documents, _streams(keys), limit, short, *_room(size)
    ))  # fmt: skip


def full_sentences(text: Text, limit: int) -> tuple[Spans, Discarded]:
    """As many whole neighbouring sentences as fit; one that never fits is cut into several."""
    size = len(text.sentences) - 1 + len(text.ids) // limit
    return _spans(
        *_full_sentences(text.sentences, text.sections, text.documents, limit, *_room(size))
    )


def _room(size: int) -> tuple[Ints, NDArray[np.int8], NDArray[np.int8], Ints]:
    """Uninitialised columns of `Spans` for at most `size` examples."""
    return (
        np.empty((size, 4), np.int64),
        np.empty(size, np.int8),
        np.empty(size, np.int8),
        np.empty((size, 2), np.int64),
    )


def _streams(keys: Keys) -> Keys:
    return np.stack([keys, np.zeros_like(keys)], axis=1)


def _spans(
    count: int,
    losses: Ints,
    bounds: Ints,
    label: NDArray[np.int8],
    coin: NDArray[np.int8],
    documents: Ints,
) -> tuple[Spans, Discarded]:
    spans = Spans(bounds[:count], label[:count], coin[:count], documents[:count])
    return spans, Discarded(*(int(loss) for loss in losses))


@njit(cache=True)
def _uniform(stream: Any) -> Any:
    """The next number in [0, 1) of a stream: its key, and how many were drawn before."""
    stream[1] += np.uint64(1)
    return draw_unit(stream[0], stream[1])


@njit(cache=True)
def _below(stream: Any, limit: Any) -> Any:
    """The next whole number in [0, limit) of a stream."""
    stream[1] += np.uint64(1)
    return draw_below(stream[0], stream[1], limit)


@njit(cache=True)
def _target(stream: Any, limit: Any, short: Any) -> Any:
    """The length to fill: mostly the whole row, with probability `short` anything from 2 up."""
    if _uniform(stream) < short:
        return 2 + _below(stream, limit - 1)
    return limit


@njit(cache=True)
def _fill(sentences: Any, start: Any, end: Any, target: Any) -> Any:
    """The first sentence not needed to fill `target` pieces from `start`; takes at least one."""
    stop = start + 1
    while stop < end and sentences[stop] - sentences[start] < target:
        stop += 1
    return stop


@njit(cache=True)
def _fit(pair: Any, stream: Any, limit: Any, losses: Any) -> Any:
    """Take pieces from the longer segment, at its front or its back by a coin, until both fit."""
    excess = (pair[1] - pair[0]) + (pair[3] - pair[2]) - limit
    if excess <= 0:
        return
    losses[0] += 1
    losses[1] += excess
    for _ in range(excess):
        longer = 0 if pair[1] - pair[0] > pair[3] - pair[2] else 2
        if _uniform(stream) < 0.5:
            pair[longer] += 1
        else:
            pair[longer + 1] -= 1


@njit(cache=True)
def _next_sentence(
    sentences: Any,
    sections: Any,
    documents: Any,
    pool_sentences: Any,
    pool_ends: Any,
    pool_documents: Any,
    own_first: Any,
    own_end: Any,
    streams: Any,
    limit: Any,
    short: Any,
    bounds: Any,
    label: Any,
    coin: Any,
    partners: Any,
) -> Any:
    count = 0
    losses = np.zeros(4, np.int64)
    for section in range(len(sections) - 1):
        stream = streams[section]
        start, end = sections[section], sections[section + 1]
        own = own_end[section] - own_first[section]
        while start < end:
            target = _target(stream, limit, short)
            stop = _fill(sentences, start, end, target)
            lone = stop - start == 1
            split = stop if lone else start + 1 + _below(stream, stop - start - 1)
            is_random = lone or _uniform(stream) < 0.5
            pair = bounds[count]
            pair[0], pair[1] = sentences[start], sentences[split]
            partners[count] = documents[section]
            if is_random:
                # The pool is ordered by group, so stepping over its own sentences leaves an even
                # choice among all others, without a retry.
                chosen = _below(stream, len(pool_ends) - own)
                if chosen >= own_first[section]:
                    chosen += own
                wanted = target - (pair[1] - pair[0])
                last = _fill(pool_sentences, chosen, pool_ends[chosen], wanted)
                pair[2], pair[3] = pool_sentences[chosen], pool_sentences[last]
                partners[count, 1] = pool_documents[chosen]
                start = split  # what would have come next is used again
            else:
                pair[2], pair[3] = sentences[split], sentences[stop]
                start = stop
            _fit(pair, stream, limit, losses)
            label[count] = 1 if is_random else 0
            coin[count] = 0 if lone else 1
            count += 1
    return count, losses, bounds, label, coin, partners


@njit(cache=True)
def _sentence_order(
    sentences: Any,
    sections: Any,
    documents: Any,
    streams: Any,
    limit: Any,
    short: Any,
    bounds: Any,
    label: Any,
    coin: Any,
    partners: Any,
) -> Any:
    count = 0
    losses = np.zeros(4, np.int64)
    for section in range(len(sections) - 1):
        stream = streams[section]
        start, end = sections[section], sections[section + 1]
        while start < end:
            stop = _fill(sentences, start, end, _target(stream, limit, short))
            pair = bounds[count]
            pair[0], pair[3] = sentences[start], sentences[stop]
            if stop - start > 1:
                middle = sentences[start + 1 + _below(stream, stop - start - 1)]
            else:
                middle = (pair[0] + pair[3]) // 2
            start = stop
            if middle == pair[0]:
                losses[2] += 1
                continue
            pair[1], pair[2] = middle, middle
            _fit(pair, stream, limit, losses)
            swapped = _uniform(stream) < 0.5
            if swapped:
                pair[0], pair[1], pair[2], pair[3] = pair[2], pair[3], pair[0], pair[1]
            partners[count] = documents[section]
            label[count] = 1 if swapped else 0
            coin[count] = 1
            count += 1
    return count, losses, bounds, label, coin, partners


@njit(cache=True)
def _full_sentences(
    sentences: Any,
    sections: Any,
    documents: Any,
    limit: Any,
    bounds: Any,
    label: Any,
    coin: Any,
    partners: Any,
) -> Any:
    count = 0
    losses = np.zeros(4, np.int64)
    for section in range(len(sections) - 1):
        sentence, end = sections[section], sections[section + 1]
        start = sentences[sentence]
        while sentence < end:
            if sentences[sentence + 1] - start > limit:
                losses[3] += start == sentences[sentence]
                stop = start + limit
            else:
                while sentence < end and sentences[sentence + 1] - start <= limit:
                    sentence += 1
                stop = sentences[sentence]
            bounds[count] = (start, stop, stop, stop)
            label[count] = -1
            coin[count] = 0
            partners[count] = documents[section]
            count += 1
            start = stop
    return count, losses, bounds, label, coin, partners
