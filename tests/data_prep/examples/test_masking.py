"""Masks follow their rule, and depend on nothing but the example and its key."""

import numpy as np
import pytest

from data_prep.errors import UsageError
from data_prep.examples.masking import (
    MaskRule,
    Masks,
    Vocabulary,
    _span_lengths,
    choose_masks,
    example_keys,
)
from data_prep.random import draw, key, keys

PAD, UNK, CLS, SEP, MASK = range(5)
SIZE = 500
# Every third piece continues a word; the last ten ids are never random replacements.
VOCABULARY = Vocabulary(
    mask=MASK,
    special=np.arange(SIZE) < 5,
    starts_word=np.arange(SIZE) % 3 != 0,
    ordinary=np.arange(5, SIZE - 10),
)
UNITS = ("token", "word", "span")


class Examples:
    """Random [CLS] a [SEP] b [SEP] examples of 5 to 128 pieces."""

    def __init__(self, count: int, seed: int = 0, longest: int = 128):
        rng = np.random.default_rng(seed)
        lengths = rng.integers(5, longest + 1, count)
        self.offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        self.tokens = rng.integers(5, SIZE, self.offsets[-1]).astype(np.uint16)
        self.tokens[rng.random(len(self.tokens)) < 0.02] = UNK
        self.tokens[self.offsets[:-1]] = CLS
        self.tokens[self.offsets[1:] - 1] = SEP
        self.tokens[self.offsets[:-1] + lengths // 2] = SEP
        self.keys = keys(key(seed, "test"), np.arange(count))

    def pieces(self, example: int) -> np.ndarray:
        return self.tokens[self.offsets[example] : self.offsets[example + 1]]

    def masks(self, rule: MaskRule) -> Masks:
        return choose_masks(self.tokens, self.offsets, self.keys, VOCABULARY, rule)

    def maskable(self) -> np.ndarray:
        return np.add.reduceat(self.tokens >= 5, self.offsets[:-1])

    def words(self, example: int) -> list[list[int]]:
        """Positions of each word: a plain reference for the compiled search."""
        words: list[list[int]] = []
        after_special = True
        for position, token in enumerate(self.pieces(example)):
            if token >= 5 and (after_special or VOCABULARY.starts_word[token]):
                words.append([position])
            elif token >= 5:
                words[-1].append(position)
            after_special = token < 5
        return words


def targets(masks: Masks, example: int) -> list[int]:
    low, high = masks.target_examples[example : example + 2]
    return [int(position) for position in masks.target[low:high]]


def flat(examples: Examples, masks: Masks) -> np.ndarray:
    """Targets as indices into all tokens."""
    counts = np.diff(masks.target_examples)
    return np.repeat(examples.offsets[:-1], counts) + masks.target


def test_draws_are_splitmix64() -> None:
    # The first outputs of the reference implementation from state 0 (Vigna, splitmix64.c).
    drawn = [int(draw(np.uint64(0), number)) for number in range(3)]
    assert drawn == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_keys_differ_by_seed_purpose_and_number() -> None:
    made = {
        key(seed, purpose, number) for seed in (0, 1) for purpose in "ab" for number in range(50)
    }
    assert len(made) == 200


@pytest.mark.parametrize("unit", UNITS)
def test_masks_do_not_depend_on_the_batch(unit: str) -> None:
    examples, rule = Examples(60), MaskRule(unit=unit)
    together = examples.masks(rule)
    for example in range(60):
        pieces = examples.pieces(example)
        alone = choose_masks(
            pieces,
            np.array([0, len(pieces)], np.int32),
            examples.keys[example : example + 1],
            VOCABULARY,
            rule,
        )
        low, high = together.target_examples[example : example + 2]
        np.testing.assert_array_equal(alone.target, together.target[low:high])
        np.testing.assert_array_equal(alone.input, together.input[low:high])


def test_keys_do_not_depend_on_the_rows_beside() -> None:
    epoch, row = np.array([0, 0, 1, 3]), np.array([5, 9, 5, 10**9])
    row_examples = np.array([0, 2, 3, 6, 7], np.int32)
    together = example_keys(7, epoch, row, row_examples)
    assert len(set(together.tolist())) == 7
    for index in range(4):
        low, high = row_examples[index : index + 2]
        alone = example_keys(
            7, epoch[index : index + 1], row[index : index + 1], np.array([0, high - low])
        )
        np.testing.assert_array_equal(alone, together[low:high])
    assert not set(together.tolist()) & set(example_keys(8, epoch, row, row_examples).tolist())


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.15, 0.4, 0.9])
@pytest.mark.parametrize("max_masks", [None, 1, 20])
def test_pieces_are_counted_as_the_rule_says(rate: float, max_masks: int | None) -> None:
    examples, rule = Examples(300), MaskRule(rate=rate, max_masks=max_masks)
    masks = examples.masks(rule)
    for example, maskable in enumerate(examples.maskable()):
        wanted = max(1, int(maskable * rate + 0.5)) if rate and maskable else 0
        wanted = min(wanted, max_masks or wanted)
        assert len(targets(masks, example)) == wanted == rule.predictions(maskable)


@pytest.mark.parametrize("unit", UNITS)
def test_targets_are_distinct_ascending_and_never_special(unit: str) -> None:
    examples = Examples(500)
    masks = examples.masks(MaskRule(unit=unit, rate=0.5))
    assert (examples.tokens[flat(examples, masks)] >= 5).all()
    assert (np.diff(flat(examples, masks)) > 0).all()
    assert masks.target.dtype == np.uint16
    assert masks.input.dtype == examples.tokens.dtype


@pytest.mark.parametrize("unit", UNITS)
def test_an_example_of_special_pieces_has_no_targets(unit: str) -> None:
    tokens = np.array([CLS, SEP, SEP, CLS, UNK, SEP, CLS, 10, SEP], np.uint16)
    offsets = np.array([0, 3, 6, 9], np.int32)
    some_keys = keys(1, np.arange(3))
    masks = choose_masks(tokens, offsets, some_keys, VOCABULARY, MaskRule(unit=unit))
    assert masks.target_examples.tolist() == [0, 0, 0, 1]
    assert masks.target.tolist() == [1]


@pytest.mark.parametrize("unit", UNITS)
def test_replacements_are_80_10_10(unit: str) -> None:
    examples = Examples(6000)
    masks = examples.masks(MaskRule(unit=unit))
    original = examples.tokens[flat(examples, masks)]
    count = len(original)
    assert count > 50_000
    chance_of_same = 1 / len(VOCABULARY.ordinary)  # a random piece may be the old one
    for share, seen in (
        (0.8, (masks.input == MASK).mean()),
        (0.1 + 0.1 * chance_of_same, (masks.input == original).mean()),
        (0.1 - 0.1 * chance_of_same, ((masks.input != MASK) & (masks.input != original)).mean()),
    ):
        assert abs(seen - share) < 6 * np.sqrt(share * (1 - share) / count)
    random = masks.input[(masks.input != MASK) & (masks.input != original)]
    assert np.isin(random, VOCABULARY.ordinary).all()
    counts = np.bincount(random, minlength=SIZE)[VOCABULARY.ordinary]
    assert abs(counts - counts.mean()).max() < 6 * np.sqrt(counts.mean())


def test_pieces_are_chosen_uniformly_and_independently() -> None:
    count = 20_000
    tokens = np.tile(np.array([CLS, *range(10, 30), SEP], np.uint16), count)
    offsets = np.arange(0, 22 * count + 1, 22, dtype=np.int32)
    masks = choose_masks(
        tokens, offsets, keys(3, np.arange(count)), VOCABULARY, MaskRule(rate=0.15)
    )
    chosen = np.zeros((count, 22), bool)
    chosen[np.repeat(np.arange(count), np.diff(masks.target_examples)), masks.target] = True
    chosen = chosen[:, 1:21]
    assert (chosen.sum(axis=1) == 3).all()
    share = chosen.mean(axis=0)
    assert abs(share - 0.15).max() < 6 * np.sqrt(0.15 * 0.85 / count)
    pairs = chosen.T.astype(float) @ chosen / count
    expected = 3 * 2 / (20 * 19)  # of two given places both
    off_diagonal = pairs[~np.eye(20, dtype=bool)]
    assert abs(off_diagonal - expected).max() < 6 * np.sqrt(expected / count)


@pytest.mark.parametrize("unit", ["word", "span"])
def test_words_are_masked_whole_and_fit_the_number(unit: str) -> None:
    examples, rule = Examples(500), MaskRule(unit=unit)
    masks = examples.masks(rule)
    wanted = rule.predictions(examples.maskable())
    for example in range(500):
        chosen = set(targets(masks, example))
        words = examples.words(example)
        for word in words:
            assert chosen >= set(word) or not chosen & set(word)
        assert len(chosen) <= wanted[example]
        # Nothing that would still fit is left out.
        left = wanted[example] - len(chosen)
        assert all(len(word) > left for word in words if not chosen & set(word))


@pytest.mark.parametrize("unit", ["word", "span"])
def test_a_part_of_a_word_is_masked_if_no_word_fits(unit: str) -> None:
    tokens = np.array([CLS, 10, 9, 9, 10, 9, 9, SEP], np.uint16)  # two words of three pieces
    seen = set()
    for number in range(40):
        masks = choose_masks(
            tokens,
            np.array([0, 8], np.int32),
            keys(number, np.arange(1)),
            VOCABULARY,
            MaskRule(unit=unit, rate=0.3),
        )
        seen.add(tuple(masks.target.tolist()))
    assert seen == {(1, 2), (4, 5)}


def test_a_segment_that_starts_inside_a_word_starts_a_word() -> None:
    # 9 continues a word: after [SEP] it must not be joined to the word before it.
    tokens = np.array([CLS, 10, SEP, 9, SEP], np.uint16)
    seen = set()
    for number in range(50):
        masks = choose_masks(
            tokens,
            np.array([0, 5], np.int32),
            keys(number, np.arange(1)),
            VOCABULARY,
            MaskRule(unit="span", rate=0.5),
        )
        seen.add(tuple(masks.target.tolist()))
    assert seen == {(1,), (3,)}


def test_span_lengths_are_a_cut_geometric_distribution() -> None:
    chances = np.diff(_span_lengths(3.8), prepend=0)
    assert len(chances) == 10
    np.testing.assert_allclose((chances * np.arange(1, 11)).sum(), 3.8, atol=1e-6)
    np.testing.assert_allclose(chances[1:] / chances[:-1], 0.8, atol=2e-3)  # SpanBERT's p = 0.2
    assert np.diff(_span_lengths(1.0), prepend=0)[0] == pytest.approx(1)
    np.testing.assert_allclose(np.diff(_span_lengths(5.5), prepend=0), 0.1, atol=1e-9)


def test_spans_have_the_length_asked_for() -> None:
    # One-piece words and room enough that neither edges nor the number cut the first span short.
    count, length = 4000, 400
    tokens = np.tile(np.array([CLS, *[10] * (length - 2), SEP], np.uint16), count)
    offsets = np.arange(0, length * count + 1, length, dtype=np.int32)
    rule = MaskRule(unit="span", rate=0.9, max_masks=10, span_length=3.8)
    masks = choose_masks(tokens, offsets, keys(5, np.arange(count)), VOCABULARY, rule)
    runs = 1 + np.sum(np.diff(flat_of(masks, offsets)) > 1)
    # Renewals: spans of mean 3.8 fill 10 places in about 10 / 3.8 + 0.5 runs, few of them touching.
    assert 2.7 < len(masks.target) / runs < 4.0
    single = choose_masks(
        tokens, offsets, keys(5, np.arange(count)), VOCABULARY, MaskRule(rate=0.9, max_masks=10)
    )
    runs_of_single = 1 + np.sum(np.diff(flat_of(single, offsets)) > 1)
    assert len(single.target) / runs_of_single < 1.1


def flat_of(masks: Masks, offsets: np.ndarray) -> np.ndarray:
    return np.repeat(offsets[:-1], np.diff(masks.target_examples)) + masks.target.astype(np.int64)


def test_impossible_span_length_is_refused() -> None:
    with pytest.raises(UsageError, match=r"examples\.span_length=6"):
        Examples(1).masks(MaskRule(unit="span", span_length=6))


def test_masks_change_with_the_epoch() -> None:
    examples = Examples(200)
    row_examples = np.arange(201, dtype=np.int32)
    rows = np.arange(200)
    first, second = (
        choose_masks(
            examples.tokens,
            examples.offsets,
            example_keys(0, np.full(200, epoch), rows, row_examples),
            VOCABULARY,
            MaskRule(),
        )
        for epoch in (0, 1)
    )
    shared = np.isin(flat(examples, first), flat(examples, second)).mean()
    assert abs(shared - 0.15) < 0.05  # what chance alone gives


def test_vocabulary_of_a_tokenizer() -> None:
    class Tokenizer:
        pad, unk, cls, sep, mask = 0, 100, 101, 102, 103
        starts_mask_word = np.ones(200, bool)
        ordinary = np.arange(104, 200)

    vocabulary = Vocabulary.of(Tokenizer())
    assert np.flatnonzero(vocabulary.special).tolist() == [0, 100, 101, 102, 103]
    assert vocabulary.mask == 103


def test_a_key_may_seed_another() -> None:
    made = [key(key(seed, "split"), "masks") for seed in range(64)]
    assert len(set(made)) == 64
