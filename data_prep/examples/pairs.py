"""Choose the token spans of each example: segment pairs or full sentences.

`next_sentence` builds pairs like Devlin et al. (create_pretraining_data.py), `sentence_order` like
ALBERT, `full_sentences` like RoBERTa. All of them read a `Text`; no token is copied yet. No example
crosses the end of a section: a section is what Devlin et al. call document.

Next-sentence pairs are made in two steps. `next_sentence` cuts the text into examples and decides
which of them get a random second segment. `join_partners` adds these segments, which the caller has
found in other documents (data_prep.examples.partners). The cuts do not depend on the partners.

The target length is drawn per example, not per document as in the original script, because a short
target would otherwise apply to a whole book.
"""

# mypy: disallow-untyped-decorators=False

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from data_prep.examples.segments import Cuts, Discarded, Ints, Keys, Partners, Spans, Text
from data_prep.random import draw, draw_below, draw_unit

TRUNCATION_DRAWS = np.uint64(1) << np.uint64(32)  # draws below this number cut the text


def next_sentence(text: Text, keys: Keys, limit: int, short: float) -> Cuts:
    """Cut a text into examples whose segment B follows A in the text, or is a random one.

    keys: one random key per section [N].
    limit: most tokens per pair, without [CLS] and [SEP].
    short: probability that a pair gets a shorter target length.
    A sentence without a neighbour always gets a random partner.
    """
    made = np.empty((len(text.sentences) - 1, 7), np.int64)
    count = _cut(_Sentences.of(text), _streams(keys), limit, short, made)
    section, start, split, stop, target, is_random, is_lone = made[:count].T
    return Cuts(section, start, split, stop, target, is_random > 0, is_lone > 0)


def join_partners(
    text: Text, cuts: Cuts, partners: Partners, keys: Keys, limit: int
) -> tuple[Spans, Discarded]:
    """Return the examples of `cuts`, with the partners as random second segments.

    A random segment is the shortest run of sentences that fills the target length. Pairs longer
    than `limit` are truncated. The other arguments are those of `next_sentence`.
    """
    columns = _Columns.empty(len(cuts.section))
    losses = np.zeros(4, np.int64)
    numbers = np.stack([cuts.section, cuts.start, cuts.split, cuts.stop, cuts.target], 1)
    _join(
        _Sentences.of(text),
        numbers,
        np.cumsum(cuts.is_random) * cuts.is_random - 1,
        _Segments(partners.sentences, partners.start, partners.end, partners.documents),
        keys,
        limit,
        columns,
        losses,
    )
    columns.label[:] = cuts.is_random
    columns.coin[:] = ~cuts.is_lone
    return columns.spans(len(cuts.section), losses)


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
    """The offsets and documents of a `Text`, and which sections are used."""

    sentences: Ints
    sections: Ints
    documents: Ints
    is_used: NDArray[np.bool_]

    @classmethod
    def of(cls, text: Text) -> "_Sentences":
        return cls(text.sentences, text.sections, text.documents, text.is_used)


class _Segments(NamedTuple):
    """The fields of `Partners` without its ids."""

    sentences: Ints
    start: Ints
    end: Ints
    documents: Ints


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
def _cut(text: Any, streams: Any, limit: Any, short: Any, made: Any) -> Any:
    """Write one row of `Cuts` per example to `made`; return their number."""
    count = 0
    for section in range(len(text.sections) - 1):
        if not text.is_used[section]:
            continue
        stream = streams[section]
        start, end = text.sections[section], text.sections[section + 1]
        while start < end:
            target = _target(stream, limit, short)
            stop = _fill(text.sentences, start, end, target)
            is_lone = stop - start == 1
            split = stop if is_lone else start + 1 + _below(stream, stop - start - 1)
            is_random = is_lone or _uniform(stream) < 0.5
            made[count] = (section, start, split, stop, target, int(is_random), int(is_lone))
            count += 1
            start = split if is_random else stop  # unused sentences start the next example
    return count


@njit(cache=True)
def _join(
    text: Any, cuts: Any, partner_of: Any, partners: Any, keys: Any, limit: Any, columns: Any,
    losses: Any,
) -> Any:  # fmt: skip
    """Fill `columns.bounds` and `columns.documents`; `partner_of` [E] is -1 for next segments."""
    sentences = text.sentences
    stream = np.empty(2, np.uint64)
    for example in range(len(cuts)):
        section, start, split, stop, target = cuts[example]
        pair = columns.bounds[example]
        pair[0], pair[1] = sentences[start], sentences[split]
        columns.documents[example] = text.documents[section]
        partner = partner_of[example]
        if partner < 0:
            pair[2], pair[3] = sentences[split], sentences[stop]
        else:
            first = partners.start[partner]
            wanted = target - (pair[1] - pair[0])
            last = _fill(partners.sentences, first, partners.end[partner], wanted)
            pair[2], pair[3] = partners.sentences[first], partners.sentences[last]
            columns.documents[example, 1] = partners.documents[partner]
        # Truncation has draws of its own, so that the cuts do not depend on the partners.
        stream[0] = draw(
            keys[section], TRUNCATION_DRAWS + np.uint64(start - text.sections[section])
        )
        stream[1] = 0
        _fit(pair, stream, limit, losses)


@njit(cache=True)
def _sentence_order(text: Any, streams: Any, limit: Any, short: Any, columns: Any) -> Any:
    sentences, count = text.sentences, 0
    losses = np.zeros(4, np.int64)
    for section in range(len(text.sections) - 1):
        if not text.is_used[section]:
            continue
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
        if not text.is_used[section]:
            continue
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
