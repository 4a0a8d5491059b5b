"""Segment pairs: equal to the plain algorithm, fair, bound to their keys."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from data_prep.examples.pairs import (
    full_sentences,
    join_partners,
    next_sentence,
    sentence_order,
)
from data_prep.examples.segments import Cuts, Discarded, Keys, Partners, Spans, Text
from data_prep.random import draw, draw_below, draw_unit, key, keys

LIMIT = 29


def make_text(documents: Sequence[Sequence[int]], first_id: int = 100) -> Text:
    """One section a document, its sentences of the given lengths, every piece with its own id."""
    lengths = [length for document in documents for length in document]
    return Text(
        ids=np.arange(first_id, first_id + sum(lengths), dtype=np.uint32),
        sentences=np.cumsum([0, *lengths]),
        sections=np.cumsum([0, *map(len, documents)]),
        documents=np.arange(len(documents)) * 3,
        numbers=np.zeros(len(documents), np.int64),
        groups=np.arange(len(documents)) * 3,
        strata=np.zeros(len(documents), np.int64),
        is_used=np.ones(len(documents), np.bool_),
    )


def make_partners(text: Text, cuts: Cuts) -> Partners:
    """For each random example any sentence of another document, in turn."""
    section = np.repeat(np.arange(len(text.documents)), np.diff(text.sections))
    start = []
    for number, own in enumerate(cuts.section[cuts.is_random]):
        others = np.flatnonzero(text.documents[section] != text.documents[own])
        start.append(others[7 * number % len(others)])
    chosen = np.array(start, np.int64)
    return Partners(
        text.ids, text.sentences, chosen, text.sections[section[chosen] + 1],
        text.documents[section[chosen]],
    )  # fmt: skip


def pair_up(text: Text, names: Keys, limit: int, short: float) -> tuple[Spans, Discarded]:
    cuts = next_sentence(text, names, limit, short)
    return join_partners(text, cuts, make_partners(text, cuts), names, limit)


def section_keys(text: Text, seed: int = 5) -> Keys:
    return keys(key(seed, "pairs", 0), text.names)


def random_text(documents: int, sentences: int, longest: int, seed: int = 0) -> Text:
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, sentences, documents)
    return make_text([rng.integers(1, longest, count).tolist() for count in counts])


def segments(spans: Spans, text: Text) -> list[tuple[list[int], list[int]]]:
    return [
        (text.ids[a:b].tolist(), text.ids[c:d].tolist()) for a, b, c, d in spans.bounds.tolist()
    ]


class Stream:
    """Draws of one section, by the interpreter."""

    def __init__(self, key: np.uint64):
        self.key, self.number = key, 0

    def uniform(self) -> float:
        self.number += 1
        return float(draw_unit(self.key, np.uint64(self.number)))

    def below(self, limit: int) -> int:
        self.number += 1
        return int(draw_below(self.key, np.uint64(self.number), limit))


def plain_pairs(
    document: list[list[int]],
    partners: Iterator[list[list[int]]],
    stream: Stream,
    limit: int,
    short: float,
) -> list[tuple[list[int], list[int], int]]:
    """Devlin et al.'s loop over one document as lists of sentences of ids."""

    def new_target() -> int:
        return 2 + stream.below(limit - 1) if stream.uniform() < short else limit

    made = []
    chunk: list[list[int]] = []
    index, target = 0, new_target()
    while index < len(document):
        chunk.append(document[index])
        if index == len(document) - 1 or sum(map(len, chunk)) >= target:
            start = index + 1 - len(chunk)
            first_count = 1 if len(chunk) == 1 else 1 + stream.below(len(chunk) - 1)
            first = [id for sentence in chunk[:first_count] for id in sentence]
            second: list[int] = []
            is_random = len(chunk) == 1 or stream.uniform() < 0.5
            if is_random:
                for sentence in next(partners):
                    second.extend(sentence)
                    if len(second) >= target - len(first):
                        break
                index -= len(chunk) - first_count
            else:
                second = [id for sentence in chunk[first_count:] for id in sentence]
            cutting = Stream(np.uint64(draw(stream.key, np.uint64((1 << 32) + start))))
            while len(first) + len(second) > limit:
                longer = first if len(first) > len(second) else second
                if cutting.uniform() < 0.5:
                    del longer[0]
                else:
                    longer.pop()
            made.append((first, second, int(is_random)))
            chunk = []
            if index + 1 < len(document):
                target = new_target()
        index += 1
    return made


@pytest.mark.parametrize("short", [0.0, 0.1, 1.0])
def test_next_sentences_equal_the_plain_algorithm(short: float) -> None:
    text = random_text(documents=12, sentences=30, longest=20)
    names = section_keys(text)
    cuts = next_sentence(text, names, LIMIT, short)
    partners = make_partners(text, cuts)
    spans, _ = join_partners(text, cuts, partners, names, LIMIT)

    def sentences(first: int, last: int) -> list[list[int]]:
        bounds = pairwise(text.sentences[first : last + 1].tolist())
        return [text.ids[a:b].tolist() for a, b in bounds]

    drawn = map(sentences, partners.start.tolist(), partners.end.tolist())
    expected = []
    for number, (first, last) in enumerate(pairwise(text.sections.tolist())):
        document = sentences(first, last)
        expected += plain_pairs(document, drawn, Stream(names[number]), LIMIT, short)
    assert segments(spans, text) == [(first, second) for first, second, _ in expected]
    assert spans.label.tolist() == [label for _, _, label in expected]
    assert next(drawn, None) is None


def test_coins_are_fair_and_lone_sentences_are_forced() -> None:
    text = random_text(documents=300, sentences=100, longest=12)
    spans, _ = pair_up(text, section_keys(text), LIMIT, 0.1)
    by_coin = spans.label[spans.coin == 1]
    assert abs(by_coin.mean() - 0.5) < 6 * 0.5 / np.sqrt(len(by_coin))
    assert (spans.label[spans.coin == 0] == 1).all()
    lone = make_text([[3], [7], [50]])
    spans, losses = pair_up(lone, section_keys(lone), LIMIT, 0.0)
    assert spans.coin.tolist() == [0, 0, 0] and spans.label.tolist() == [1, 1, 1]
    assert losses.truncated >= 1


def test_every_sentence_is_used_as_text_or_next() -> None:
    """What a random segment pushes aside comes back: without truncation nothing is lost."""
    text = make_text([[1] * 50, [1] * 80])
    spans, losses = pair_up(text, section_keys(text), LIMIT, 0.3)
    used = np.concatenate(
        [np.arange(a, b) for a, b, _, _ in spans.bounds]
        + [np.arange(c, d) for _, _, c, d in spans.bounds[spans.label == 0]]
    )
    assert losses.truncated == 0
    assert sorted(used.tolist()) == list(range(130))


def test_short_targets_have_their_share() -> None:
    text = make_text([[1] * 20_000, [1] * 20_000])
    spans, _ = sentence_order(text, section_keys(text), LIMIT, 0.1)
    is_short = spans.lengths < LIMIT + 3
    # A target drawn from 2 to LIMIT is short unless it is LIMIT itself.
    share = 0.1 * (LIMIT - 2) / (LIMIT - 1)
    deviation = np.sqrt(share * (1 - share) / len(is_short))
    assert abs(is_short.mean() - share) < 6 * deviation
    assert spans.lengths.min() == 2 + 3


@pytest.mark.parametrize("limit", [5, 29, 125])
def test_examples_fit_and_segments_are_never_empty(limit: int) -> None:
    text = random_text(documents=40, sentences=40, longest=90)
    names = section_keys(text)
    for spans, _ in (
        pair_up(text, names, limit, 0.1),
        sentence_order(text, names, limit, 0.1),
    ):
        first, first_end, second, second_end = spans.bounds.T
        assert (first_end > first).all() and (second_end > second).all()
        assert (spans.lengths <= limit + 3).all()
    spans, _ = full_sentences(text, limit)
    assert (spans.lengths <= limit + 2).all()


def test_results_do_not_depend_on_what_lies_beside_a_section() -> None:
    text = random_text(documents=20, sentences=30, longest=20)
    names = section_keys(text)
    whole = next_sentence(text, names, LIMIT, 0.1)
    halves = [
        next_sentence(replace(text, is_used=is_used), names, LIMIT, 0.1)
        for is_used in (np.arange(20) < 7, np.arange(20) >= 7)
    ]
    for name, column in vars(whole).items():
        assert column.tolist() == [value for half in halves for value in vars(half)[name]]
    for make in (full_sentences, sentence_order):
        arguments = (LIMIT,) if make is full_sentences else (names, LIMIT, 0.1)
        assert sum(
            len(make(replace(text, is_used=used), *arguments)[0].label)
            for used in (np.arange(20) < 7, np.arange(20) >= 7)
        ) == len(make(text, *arguments)[0].label)


def test_sentence_order_swaps_neighbours_by_a_fair_coin() -> None:
    text = random_text(documents=300, sentences=60, longest=12)
    spans, _ = sentence_order(text, section_keys(text), LIMIT, 0.1)
    first, _, second, _ = spans.bounds.T
    assert ((first < second) == (spans.label == 0)).all()
    assert (spans.coin == 1).all()
    assert (spans.documents[:, 0] == spans.documents[:, 1]).all()
    assert abs(spans.label.mean() - 0.5) < 6 * 0.5 / np.sqrt(len(spans.label))


def test_sentence_order_cuts_a_lone_sentence_and_drops_a_lone_piece() -> None:
    text = make_text([[1], [9], [200]])
    spans, losses = sentence_order(text, section_keys(text), LIMIT, 0.0)
    assert spans.documents[:, 0].tolist() == [3, 6]
    assert losses.dropped == 1 and losses.truncated == 1
    bounds = sorted(spans.bounds[0].tolist())
    assert bounds == [1, 5, 5, 10]


def test_full_sentences_lose_nothing_and_cut_only_what_never_fits() -> None:
    text = make_text([[3, 4, 5, 20], [1], [100, 2, 2], [LIMIT], [LIMIT + 1]])
    spans, losses = full_sentences(text, LIMIT)
    used = np.concatenate([np.arange(a, b) for a, b, _, _ in spans.bounds])
    assert used.tolist() == list(range(len(text.ids)))
    assert losses.cut == 2
    expected = [12, 20, 1, 29, 29, 29, 17, 29, 29, 1]
    assert (spans.bounds[:, 1] - spans.bounds[:, 0]).tolist() == expected
    assert (spans.label == -1).all() and (spans.coin == 0).all()


def test_empty_sections_give_no_examples() -> None:
    text = make_text([[], [3, 4], [], [5, 6]])
    names = section_keys(text)
    for spans in (
        pair_up(text, names, LIMIT, 0.1)[0],
        sentence_order(text, names, LIMIT, 0.1)[0],
        full_sentences(text, LIMIT)[0],
    ):
        assert set(spans.documents[:, 0].tolist()) == {3, 9}
