"""Choose the token spans of each example: segment pairs or full sentences.

`next_sentence` builds pairs like Devlin et al. (create_pretraining_data.py), `sentence_order` like
ALBERT, `full_sentences` like RoBERTa. All three read a `Text` and return `Spans`; no token is
copied yet. No example crosses the end of a section: a section is what Devlin et al. call document.

There are two differences from the original script. The target length is drawn per example, not
per document, because a short target would otherwise apply to a whole book. The random segment
starts at any sentence of the pool, but never in the same document or group.

S sentences, N sections, P sentences of the pool, E examples
"""

# mypy: disallow-untyped-decorators=False

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from data_prep.corpus.shard_format import section_names
from data_prep.random import draw_below, draw_unit

Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]

NEXT, OTHER, NO_PAIR = 0, 1, -1  # pair labels; 0 and 1 as in Hugging Face's BERT


@dataclass(frozen=True)
class Text:
    """The tokenized sections of one part of a shard, as flat arrays."""

    ids: NDArray[np.unsignedinteger]  # [tokens] of all sentences, one after another
    sentences: Ints  # [S+1] offsets into ids; no sentence is empty
    sections: Ints  # [N+1] offsets into sentences
    documents: Ints  # [N] document number of each section
    numbers: Ints  # [N] section number in its document
    groups: Ints  # [N] group number (`text.group_number`); random segments come from other groups
    weights: NDArray[np.float64]  # [N] expected copies of the section's document

    @property
    def names(self) -> Ints:
        """Section ids [N], unique in the whole corpus."""
        names: Ints = section_names(self.documents, self.numbers)
        return names

    def only(self, is_kept: NDArray[np.bool_]) -> "Text":
        """Return a text with only the sections where `is_kept` [N] is True."""
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
    """Sentences at which random segments may start, ordered by group."""

    ids: NDArray[np.unsignedinteger]  # [tokens]
    sentences: Ints  # [P+1] offsets into ids
    ends: Ints  # [P] one past the last sentence of the run that holds this sentence
    documents: Ints  # [P] document number
    groups: Ints  # [P] ascending, as in `Text`


@dataclass(frozen=True)
class Spans:
    """Examples as token ranges: segment A in `Text.ids`, segment B there or in `Pool.ids`.

    Segment B is in the pool where the two documents differ.
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


def next_sentence(
    text: Text, pool: Pool, keys: Keys, limit: int, short: float
) -> tuple[Spans, Discarded]:
    """Build pairs whose segment B follows A in the text, or is a random one from the pool.

    keys: one random key per section [N].
    limit: most tokens per pair, without [CLS] and [SEP].
    short: probability that a pair gets a shorter target length.
    A sentence without a neighbour always gets a random partner (coin = 0).
    """
    partners = _Partners(
        pool.sentences,
        pool.ends,
        pool.documents,
        own_first=np.searchsorted(pool.groups, text.groups, "left"),
        own_end=np.searchsorted(pool.groups, text.groups, "right"),
    )
    columns = _Columns.empty(len(text.sentences) - 1)
    return columns.spans(
        *_next_sentence(_Sentences.of(text), partners, _streams(keys), limit, short, columns)
    )


def sentence_order(text: Text, keys: Keys, limit: int, short: float) -> tuple[Spans, Discarded]:
    """Build pairs of adjacent segments, swapped with probability 0.5.

    The arguments are those of `next_sentence`. A sentence without a neighbour is split in its
    middle.
    """
    columns = _Columns.empty(len(text.sentences) - 1)
    return columns.spans(
        *_sentence_order(_Sentences.of(text), _streams(keys), limit, short, columns)
    )


def full_sentences(text: Text, limit: int) -> tuple[Spans, Discarded]:
    """Build examples of as many adjacent whole sentences as fit into `limit` tokens.

    A sentence longer than `limit` is split over several examples.
    """
    columns = _Columns.empty(len(text.sentences) - 1 + len(text.ids) // limit)
    return columns.spans(*_full_sentences(_Sentences.of(text), limit, columns))


# Arguments of the compiled functions below: numba takes named tuples, not dataclasses.


class _Sentences(NamedTuple):
    """The offsets and documents of a `Text`."""

    sentences: Ints
    sections: Ints
    documents: Ints

    @classmethod
    def of(cls, text: Text) -> "_Sentences":
        return cls(text.sentences, text.sections, text.documents)


class _Partners(NamedTuple):
    """The offsets and documents of a `Pool`, and the part of it that each section must not use."""

    sentences: Ints  # [P+1]
    ends: Ints  # [P]
    documents: Ints  # [P]
    own_first: Ints  # [N] the pool's sentences of the section's own group, from here
    own_end: Ints  # [N] to here, excluded


class _Columns(NamedTuple):
    """The columns of `Spans` with room for some number of examples."""

    bounds: Ints
    label: NDArray[np.int8]
    coin: NDArray[np.int8]
    documents: Ints

    @classmethod
    def empty(cls, size: int) -> "_Columns":
        return cls(
            np.empty((size, 4), np.int64),
            np.empty(size, np.int8),
            np.empty(size, np.int8),
            np.empty((size, 2), np.int64),
        )

    def spans(self, count: int, losses: Ints) -> tuple[Spans, Discarded]:
        """Return the first `count` examples, and what did not fit."""
        spans = Spans(
            self.bounds[:count], self.label[:count], self.coin[:count], self.documents[:count]
        )
        return spans, Discarded(*(int(loss) for loss in losses))


def _streams(keys: Keys) -> Keys:
    return np.stack([keys, np.zeros_like(keys)], axis=1)  # [N, 2] key, numbers drawn so far


@njit(cache=True)
def _uniform(stream: Any) -> Any:
    """Draw the next number in [0, 1) of a stream (key, draws so far); changes `stream`."""
    stream[1] += np.uint64(1)
    return draw_unit(stream[0], stream[1])


@njit(cache=True)
def _below(stream: Any, limit: Any) -> Any:
    """Draw the next integer in [0, limit) of a stream; changes `stream`."""
    stream[1] += np.uint64(1)
    return draw_below(stream[0], stream[1], limit)


@njit(cache=True)
def _target(stream: Any, limit: Any, short: Any) -> Any:
    """Draw a target length: `limit`, or with probability `short` uniform in [2, limit]."""
    if _uniform(stream) < short:
        return 2 + _below(stream, limit - 1)
    return limit


@njit(cache=True)
def _fill(sentences: Any, start: Any, end: Any, target: Any) -> Any:
    """Return the end of the shortest run of sentences from `start` with `target` tokens or more.

    The run has at least one sentence and ends at `end` at the latest.
    """
    stop = start + 1
    while stop < end and sentences[stop] - sentences[start] < target:
        stop += 1
    return stop


@njit(cache=True)
def _fit(pair: Any, stream: Any, limit: Any, losses: Any) -> Any:
    """Truncate a pair to `limit` tokens, in place.

    Each token is removed from the longer segment, at its front or back with equal probability.
    `losses` counts the truncated pairs and the removed tokens.
    """
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
    text: Any, partners: Any, streams: Any, limit: Any, short: Any, columns: Any
) -> Any:
    sentences, count = text.sentences, 0
    losses = np.zeros(4, np.int64)
    for section in range(len(text.sections) - 1):
        stream = streams[section]
        start, end = text.sections[section], text.sections[section + 1]
        while start < end:
            target = _target(stream, limit, short)
            stop = _fill(sentences, start, end, target)
            lone = stop - start == 1
            split = stop if lone else start + 1 + _below(stream, stop - start - 1)
            is_random = lone or _uniform(stream) < 0.5
            pair = columns.bounds[count]
            pair[0], pair[1] = sentences[start], sentences[split]
            columns.documents[count] = text.documents[section]
            if is_random:
                chosen = _choose_partner(partners, section, stream)
                wanted = target - (pair[1] - pair[0])
                last = _fill(partners.sentences, chosen, partners.ends[chosen], wanted)
                pair[2], pair[3] = partners.sentences[chosen], partners.sentences[last]
                columns.documents[count, 1] = partners.documents[chosen]
                start = split  # the unused sentences start the next example
            else:
                pair[2], pair[3] = sentences[split], sentences[stop]
                start = stop
            _fit(pair, stream, limit, losses)
            columns.label[count] = 1 if is_random else 0
            columns.coin[count] = 0 if lone else 1
            count += 1
    return count, losses


@njit(cache=True)
def _choose_partner(partners: Any, section: Any, stream: Any) -> Any:
    """Draw a sentence of the pool that is not of the section's own group.

    The pool is ordered by group, so skipping the range of the own group gives a uniform choice
    among all other sentences, without retries.
    """
    own = partners.own_end[section] - partners.own_first[section]
    chosen = _below(stream, len(partners.ends) - own)
    return chosen + own if chosen >= partners.own_first[section] else chosen


@njit(cache=True)
def _sentence_order(text: Any, streams: Any, limit: Any, short: Any, columns: Any) -> Any:
    sentences, count = text.sentences, 0
    losses = np.zeros(4, np.int64)
    for section in range(len(text.sections) - 1):
        stream = streams[section]
        start, end = text.sections[section], text.sections[section + 1]
        while start < end:
            stop = _fill(sentences, start, end, _target(stream, limit, short))
            pair = columns.bounds[count]
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
            columns.documents[count] = text.documents[section]
            columns.label[count] = 1 if swapped else 0
            columns.coin[count] = 1
            count += 1
    return count, losses


@njit(cache=True)
def _full_sentences(text: Any, limit: Any, columns: Any) -> Any:
    sentences, count = text.sentences, 0
    losses = np.zeros(4, np.int64)
    for section in range(len(text.sections) - 1):
        sentence, end = text.sections[section], text.sections[section + 1]
        start = sentences[sentence]
        while sentence < end:
            if sentences[sentence + 1] - start > limit:
                losses[3] += start == sentences[sentence]
                stop = start + limit
            else:
                while sentence < end and sentences[sentence + 1] - start <= limit:
                    sentence += 1
                stop = sentences[sentence]
            columns.bounds[count] = (start, stop, stop, stop)
            columns.label[count] = -1
            columns.coin[count] = 0
            columns.documents[count] = text.documents[section]
            count += 1
            start = stop
    return count, losses
