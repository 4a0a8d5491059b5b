"""Random segments favour no text, tell nothing about labels and are never of the same group."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from data_prep.examples import partners as module
from data_prep.examples.pairs import next_sentence
from data_prep.examples.partners import (
    OPENING,
    Openings,
    PartnerSource,
    Table,
    _permuted,
    find_openings,
    make_table,
    write_openings,
)
from data_prep.examples.segments import Ints, Partners, Text
from data_prep.examples.text import Unit, read_text
from data_prep.random import key, keys, permute

LIMIT = 29


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000, 4097])
def test_a_keyed_permutation_reaches_everything_once_and_differs_by_key(size: int) -> None:
    images = [[permute(np.uint64(k), index, size) for index in range(size)] for k in (1, 2)]
    assert all(sorted(each) == list(range(size)) for each in images)
    assert images[0] != images[1] or size < 4


@pytest.mark.parametrize("gigabytes", [0.3, 3, 30, 300])
def test_no_text_is_favoured_and_no_region_tells_the_label_at_any_size(gigabytes: float) -> None:
    """Indices only: parts of 4 MB with openings of very different density, one space."""
    rng = np.random.default_rng(0)
    parts = int(gigabytes * 250)
    counts = rng.lognormal(3, 1, parts).astype(int) + 1
    first = np.concatenate([[0], np.cumsum(counts)])
    total = int(first[-1])
    block = max(1, total // (module.STRETCHES * parts))
    drawn = _permuted(np.uint64(key(1, "partners", 0, 0)), 0, total, block, total)
    # Every opening has one reader, so a part supplies as many random segments as it takes, and any
    # 1 % of the corpus 1 % of them.
    assert (np.bincount(drawn, minlength=total) == 1).all()
    taker = np.repeat(np.arange(parts), counts)
    giver = np.searchsorted(first, drawn, "right") - 1
    supplied = np.bincount(giver, minlength=parts)
    assert (supplied == counts).all()
    # A coin-decided pair is random or next with equal chance: per part, n openings are random
    # segments, about n pairs are next ones.
    following = rng.binomial(2 * counts, 0.5)
    told = np.maximum(following, supplied).sum()
    noise = 0.4 * np.sqrt(2 * counts).sum() / (2 * total)
    assert told / (following + supplied).sum() < 0.51 + noise
    # A part reads from some dozens of others, in proportion to its openings.
    pairs = len(np.unique(taker.astype(np.int64) * parts + giver))
    assert pairs < 3 * module.STRETCHES * parts


def write_part(unit: Unit, lengths: list[list[int]], groups: Ints, strata: Ints, base: int) -> None:
    """A text folder with one section per document; ids count on through all parts."""
    unit.text.mkdir(parents=True)
    flat = [length for document in lengths for length in document]
    first = np.cumsum([0, *map(len, lengths)])
    documents = groups * 10 + np.arange(len(lengths)) % 10
    table = np.stack([documents, np.zeros_like(documents), first[:-1], groups, strata], 1)
    np.save(unit.text / "ids.npy", np.arange(base, base + sum(flat), dtype=np.uint32))
    np.save(unit.text / "sentences.npy", np.cumsum([0, *flat]))
    np.save(unit.text / "sections.npy", np.concatenate([table, [[-1, -1, first[-1], -1, -1]]]))


class Corpus:
    """Parts of documents with random sentences, their openings and their table."""

    def __init__(self, root: Path, groups: list[list[int]], strata: list[list[int]] | None = None):
        rng = np.random.default_rng(3)
        self.units = [Unit(root, "train", part) for part in range(len(groups))]
        base = 0
        for unit, own in zip(self.units, groups, strict=True):
            lengths = [rng.integers(1, 12, rng.integers(1, 40)).tolist() for _ in own]
            of = np.zeros(len(own), int) if strata is None else np.array(strata[unit.part])
            write_part(unit, lengths, np.array(own), of, base)
            base += sum(map(sum, lengths))
            unit.openings.mkdir()
            write_openings(self.text(unit), self.openings(unit), unit.part, unit.openings)
        self.table = make_table(self.units)

    def text(self, unit: Unit) -> Text:
        return read_text(unit.text)

    def openings(self, unit: Unit) -> Openings:
        text = self.text(unit)
        cuts = next_sentence(text, keys(key(1, "pairs", 0), text.names), LIMIT, 0.1)
        return find_openings(text, cuts, unit.part)

    def draw(self, unit: Unit, **changes: bool) -> tuple[Openings, Partners, int]:
        own = self.openings(unit)
        source = PartnerSource(unit, self.table, unit, self.table.spares, 1, LIMIT)
        return own, *replace(source, **changes).draw(own)  # type: ignore[arg-type]


def test_every_opening_is_used_once_by_an_example_of_another_group(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path, [[5 * part + n // 3 for n in range(30)] for part in range(6)])
    offered: Counter[int] = Counter()
    taken: Counter[int] = Counter()
    for unit in corpus.units:
        own, partners, reused = corpus.draw(unit)
        assert reused == 0 and len(partners.start) == len(own)
        assert (partners.documents // 10 != own["group"]).all()
        text = corpus.text(unit)
        offered.update(text.ids[text.sentences[own["sentence"]]].tolist())
        taken.update(partners.ids[partners.sentences[partners.start]].tolist())
        # A segment has all the tokens it may need, or ends with its section.
        length = partners.sentences[partners.end] - partners.sentences[partners.start]
        assert (partners.end > partners.start).all() and (length > 0).all()
    assert taken == offered


def test_a_part_without_random_examples_draws_nothing(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path, [list(range(20)), [20]])
    source = PartnerSource(
        corpus.units[1], corpus.table, corpus.units[1], corpus.table.spares, 1, LIMIT
    )
    partners, reused = source.draw(np.zeros(0, OPENING))
    assert (len(partners.start), len(partners.ids), reused) == (0, 0, 0)


def test_segments_hold_the_text_of_their_section_up_to_the_limit(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path, [list(range(20)), list(range(20, 40))])
    texts = [corpus.text(unit) for unit in corpus.units]
    of_id: dict[int, tuple[int, int]] = {}  # the sentence that starts with an id: part, number
    for part, text in enumerate(texts):
        for number, place in enumerate(text.sentences[:-1].tolist()):
            of_id[int(text.ids[place])] = part, number
    _, partners, _ = corpus.draw(corpus.units[0])
    for start, end, document in zip(partners.start, partners.end, partners.documents, strict=True):
        ids = partners.ids[partners.sentences[start] : partners.sentences[end]]
        part, sentence = of_id[int(ids[0])]
        text = texts[part]
        section = int(np.searchsorted(text.sections, sentence, "right")) - 1
        assert text.documents[section] == document
        assert ids.tolist() == list(range(ids[0], ids[0] + len(ids)))
        rest = text.sentences[text.sections[section + 1]] - text.sentences[sentence]
        assert len(ids) >= min(LIMIT, rest)


def test_partners_are_of_the_same_named_source_if_it_has_two_groups(tmp_path: Path) -> None:
    groups = [list(range(30 * part, 30 * part + 30)) for part in range(4)]
    strata = [[(n % 3) + 5 for n in range(30)] for _ in range(4)]
    strata[2][0] = 99  # a source of one document
    corpus = Corpus(tmp_path, groups, strata)
    of = {
        g: s for own, of in zip(groups, strata, strict=True) for g, s in zip(own, of, strict=True)
    }
    for unit in corpus.units:
        own, partners, _ = corpus.draw(unit)
        for mine, theirs in zip(
            own["group"].tolist(), (partners.documents // 10).tolist(), strict=True
        ):
            assert mine != theirs
            assert of[mine] == of[theirs] or {of[mine], of[theirs]} == {7, 99}


def test_a_group_with_most_of_the_text_uses_the_rest_again_and_says_so(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path, [[1] * 30 + [2, 3]])
    own, partners, reused = corpus.draw(corpus.units[0])
    assert (partners.documents // 10 != own["group"]).all()
    assert reused > 50
    again = Counter(partners.start.tolist())
    assert max(again.values()) - min(again.values()) <= reused // 2


def test_text_whose_only_other_group_has_no_opening_starts_at_its_sections(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path, [[1] * 5, [2]])
    empty = np.zeros(0, OPENING)
    unit = corpus.units[1]
    np.save(unit.openings / "openings.npy", empty)
    np.save(unit.openings / "spaces.npy", np.zeros((0, 3), np.int64))
    corpus.table = make_table(corpus.units)
    _, partners, reused = corpus.draw(corpus.units[0])
    assert (partners.documents // 10 == 2).all() and reused == len(partners.start)


def test_other_text_may_take_partners_too(tmp_path: Path) -> None:
    """Held-out text of one group takes those of the training text."""
    corpus = Corpus(tmp_path / "train", [[1, 2, 3], [4, 5, 6]])
    other = Corpus(tmp_path / "heldout", [[9] * 40])
    own = other.openings(other.units[0])
    source = PartnerSource(
        other.units[0], corpus.table, corpus.units[0], corpus.table.spares, 1, LIMIT, is_own=False
    )
    partners, _ = source.draw(own)
    assert len(partners.start) == len(own) > 50
    assert set((partners.documents // 10).tolist()) <= set(range(1, 7))


def test_tables_are_read_as_they_were_written(tmp_path: Path) -> None:
    table = Corpus(tmp_path / "corpus", [[1, 2], [3]]).table
    table.save(tmp_path)
    again = Table.load(tmp_path)
    assert all(np.array_equal(value, vars(again)[name]) for name, value in vars(table).items())
    assert again.group_count == 2
