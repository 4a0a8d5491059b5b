"""Choose the tokens of an example that are predicted (targets), and their replacements.

An example with n maskable tokens gets `predictions(n)` targets: rate * n rounded, at least one, at
most `max_masks` (Devlin et al., 2019, but there n includes [CLS] and [SEP]). Special tokens,
including [UNK], are never targets. Each target independently becomes [MASK] (80 %), a uniformly
drawn ordinary token (10 %), or stays as it is (10 %). The mask unit is chosen as a whole:

    token  single tokens, uniformly without replacement
    word   whole words in random order; a word is skipped if it exceeds the remaining predictions
    span   runs of whole words from random starts; lengths geometric over 1 to 10, as in SpanBERT
           (Joshi et al., 2020, section 3.1); a run ends early before a special token, a word
           chosen before, and a word that exceeds the remaining predictions

A word is a run of tokens between white space or punctuation. In scripts without spaces it is a word
of the segmenter, if tokens end where it ends; else the shortest run of tokens that holds whole
words. (Rows of earlier versions have no such words: there each token is one.) If every word is
longer than the number of predictions, a part of one word is chosen.
The masks depend only on the example's tokens and its key, not on the batch it is in.

R rows, E examples, T tokens, M targets
"""

# mypy: disallow-untyped-decorators=False

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numba import njit
from numpy.typing import NDArray

from data_prep.errors import UsageError
from data_prep.examples.chunks import Array, Chunk
from data_prep.random import draw, draw_below, draw_unit, key

UNITS = ("token", "word", "span")
LONGEST_SPAN = 10  # words
MASKED, RANDOM = 0.8, 0.9  # cumulative: [MASK]; [MASK] or a random token
REPLACEMENT_DRAWS = np.uint64(1) << np.uint64(32)  # draws below this number choose targets


class Pieces(Protocol):
    """The part of a tokenizer that masking reads; `data_prep.tokenizers.Tokenizer` has it."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int

    @property
    def starts_mask_word(self) -> Array: ...

    @property
    def ordinary(self) -> Array: ...


@dataclass(frozen=True)
class Vocabulary:
    """Properties of the V tokens of a vocabulary."""

    mask: int  # id of [MASK]
    special: NDArray[np.bool_]  # [V]
    starts_word: NDArray[np.bool_]  # [V]
    ordinary: NDArray[np.int64]  # ids that may be random replacements

    @classmethod
    def of(cls, tokenizer: Pieces) -> Self:
        """Read the properties from a tokenizer."""
        starts_word = np.asarray(tokenizer.starts_mask_word, np.bool_)
        special = np.zeros(len(starts_word), np.bool_)
        special[[tokenizer.pad, tokenizer.unk, tokenizer.cls, tokenizer.sep, tokenizer.mask]] = True
        return cls(tokenizer.mask, special, starts_word, np.asarray(tokenizer.ordinary, np.int64))


@dataclass(frozen=True)
class MaskRule:
    """The mask settings; the fields are those of `ExamplesConfig`."""

    rate: float = 0.15
    max_masks: int | None = None
    unit: str = "token"
    span_length: float = 3.8
    final_rate: float | None = None  # rate at the end of training; None: the rate is constant

    def after(self, done: float) -> "MaskRule":
        """Return the rule after a share `done` (0 to 1) of training."""
        if self.final_rate is None:
            return self
        rate = self.rate + (self.final_rate - self.rate) * done
        return replace(self, rate=rate, final_rate=None)

    def predictions(self, maskable: Array) -> NDArray[np.int64]:
        """Return the targets per example [E], from its number of maskable tokens [E].

        With the units word and span, this is an upper bound.
        """
        cap = np.iinfo(np.int64).max if self.max_masks is None else self.max_masks
        rounded = np.floor(np.asarray(maskable) * self.rate + 0.5).astype(np.int64)
        wanted = np.minimum(np.maximum(rounded, 1), cap)
        return np.where((np.asarray(maskable) > 0) & (self.rate > 0), wanted, 0)


# Held-out rows always use this rule (15 % of single tokens, 80/10/10), so that runs with different
# training masks are scored on the same predictions.
HELD_OUT_MASKS = MaskRule()


@dataclass(frozen=True)
class Masks:
    """Targets and their replacements, as the columns of a `Chunk`."""

    target: Array  # [M] uint16, position in the example; ascending in each example
    target_examples: Array  # [E+1] int32, offsets of each example's targets
    input: Array  # [M] id shown at the target, same dtype as the tokens


def example_keys(seed: int, epoch: Array, row: Array, row_examples: Array) -> NDArray[np.uint64]:
    """Return one random key per example [E].

    seed: the seed of the masks.
    epoch, row: epoch and row number in the whole data, per row [R].
    row_examples: offsets of each row's examples [R+1].
    """
    made: NDArray[np.uint64] = _example_keys(
        np.uint64(key(seed, "masks")), epoch, row, row_examples
    )
    return made


def mask_rows(
    rows: Chunk, seed: int, epoch: Array, row: Array, vocabulary: Vocabulary, rule: MaskRule
) -> Chunk:
    """Return the same rows with masks; the arguments are those of `example_keys`."""
    keys = example_keys(seed, epoch, row, rows.row_examples)
    masks = choose_masks(rows.tokens, rows.example_tokens, keys, vocabulary, rule, rows.word_flips)
    return replace(
        rows, target=masks.target, target_examples=masks.target_examples, input=masks.input
    )


def choose_masks(
    tokens: Array,
    example_tokens: Array,
    example_keys: NDArray[np.uint64],
    vocabulary: Vocabulary,
    rule: MaskRule,
    word_flips: Array | None = None,
) -> Masks:
    """Choose the targets of every example and their replacements.

    tokens: [T] unmasked ids; not changed.
    example_tokens: offsets of each example's tokens [E+1].
    example_keys: one random key per example [E].
    word_flips: the column of the same name in `Chunk` [T].
    """
    maskable = _count_maskable(tokens, example_tokens, vocabulary.special)
    flips = np.zeros(0, np.uint8) if word_flips is None else word_flips
    examples = _Examples(tokens, flips, example_tokens, example_keys, rule.predictions(maskable))
    room = int(examples.wanted.sum())
    out = _Out(
        np.empty(room, np.uint16),
        np.empty(room, tokens.dtype),
        np.zeros(len(example_tokens), np.int32),
    )
    compiled = _Rule(UNITS.index(rule.unit), _span_lengths(rule.span_length))
    total = _choose(examples, _Tokens(**vars(vocabulary)), compiled, out)
    return Masks(out.target[:total], out.target_examples, out.input[:total])


# Arguments of the compiled functions below: numba takes named tuples, not dataclasses.


class _Examples(NamedTuple):
    """E examples of T tokens."""

    tokens: Array  # [T]
    word_flips: Array  # [T], or empty if there are none
    example_tokens: Array  # [E+1] offsets
    keys: NDArray[np.uint64]  # [E]
    wanted: NDArray[np.int64]  # [E] targets per example, at most


class _Tokens(NamedTuple):
    """The fields of a `Vocabulary`."""

    mask: int
    special: NDArray[np.bool_]
    starts_word: NDArray[np.bool_]
    ordinary: NDArray[np.int64]


class _Rule(NamedTuple):
    """The mask unit, as an index of UNITS, and the cumulative probabilities of span lengths."""

    unit: int
    span_lengths: NDArray[np.float64]


class _Out(NamedTuple):
    """The columns of `Masks`, with room for all targets."""

    target: Array
    input: Array
    target_examples: NDArray[np.int32]


class _Scratch(NamedTuple):
    """Working memory for one example; each array is as long as the longest example."""

    starts: NDArray[np.int64]  # of units
    ends: NDArray[np.int64]
    shuffled: NDArray[np.int64]  # unit numbers
    chosen: NDArray[np.bool_]  # per position


@cache
def _span_lengths(mean: float) -> NDArray[np.float64]:
    """Return the cumulative probabilities of 1 to LONGEST_SPAN words.

    The distribution is geometric, truncated at LONGEST_SPAN, with this mean after truncation.
    """
    words = np.arange(1, LONGEST_SPAN + 1)
    if not 1 <= mean <= words.mean():
        raise UsageError(
            f"examples.span_length={mean}: must be between 1 and {words.mean()}, because a span "
            f"has at most {LONGEST_SPAN} words"
        )
    low, high = 0.0, 1.0
    for _ in range(60):  # bisection: the mean grows with the continuation probability
        middle = (low + high) / 2
        chances = middle ** (words - 1.0)
        if (chances * words).sum() < mean * chances.sum():
            low = middle
        else:
            high = middle
    chances = low ** (words - 1.0)
    cumulative: NDArray[np.float64] = np.cumsum(chances) / chances.sum()
    return cumulative


@njit(cache=True)
def _example_keys(key: Any, epoch: Any, row: Any, row_examples: Any) -> Any:
    made = np.empty(row_examples[-1], np.uint64)
    for index in range(len(row)):
        row_key = draw(draw(key, epoch[index]), row[index])
        first = row_examples[index]
        for example in range(first, row_examples[index + 1]):
            made[example] = draw(row_key, example - first)
    return made


@njit(cache=True)
def _count_maskable(tokens: Any, example_tokens: Any, special: Any) -> Any:
    counts = np.zeros(len(example_tokens) - 1, np.int64)
    for example in range(len(counts)):
        for index in range(example_tokens[example], example_tokens[example + 1]):
            counts[example] += not special[tokens[index]]
    return counts


@njit(cache=True)
def _find_units(tokens: Any, flips: Any, vocabulary: Any, by_word: Any, scratch: Any) -> Any:
    """Write the bounds of one example's units to `scratch`; return their number."""
    units = 0
    inside = False
    for position in range(len(tokens)):
        token = tokens[position]
        if vocabulary.special[token]:
            inside = False
            continue
        starts_word = vocabulary.starts_word[token]
        if len(flips) > 0 and flips[position] != 0:
            starts_word = not starts_word
        if inside and by_word and not starts_word:
            scratch.ends[units - 1] = position + 1
        else:
            scratch.starts[units], scratch.ends[units] = position, position + 1
            units += 1
        inside = True
    return units


@njit(cache=True)
def _choose(examples: Any, vocabulary: Any, rule: Any, out: Any) -> Any:
    """Fill `out` with the targets of all examples; return their number."""
    longest = np.max(np.diff(examples.example_tokens)) if len(examples.wanted) else 0
    scratch = _Scratch(
        np.empty(longest, np.int64),
        np.empty(longest, np.int64),
        np.empty(longest, np.int64),
        np.empty(longest, np.bool_),
    )
    total = 0
    for example in range(len(examples.wanted)):
        begin, end = examples.example_tokens[example], examples.example_tokens[example + 1]
        if examples.wanted[example] > 0:
            tokens, example_key = examples.tokens[begin:end], examples.keys[example]
            flips = examples.word_flips[begin:end]
            units = _find_units(tokens, flips, vocabulary, rule.unit > 0, scratch)
            scratch.chosen[: end - begin] = False
            _choose_units(units, examples.wanted[example], example_key, rule, scratch)
            total = _replace(tokens, example_key, vocabulary, scratch.chosen, out, total)
        out.target_examples[example + 1] = total
    return total


@njit(cache=True)
def _choose_units(units: Any, wanted: Any, example_key: Any, rule: Any, scratch: Any) -> Any:
    """Choose random units with at most `wanted` positions; sets `scratch.chosen` there."""
    starts, ends, shuffled, chosen = scratch
    for index in range(units):
        shuffled[index] = index
    left = wanted
    drawn = 0  # a word that is chosen in part if no word fits
    for index in range(units):  # a Fisher-Yates shuffle that stops early
        if left == 0:
            break
        other = index + draw_below(example_key, 2 * index, units - index)
        first = shuffled[other]
        shuffled[other] = shuffled[index]
        if index == 0:
            drawn = first
        words = 1
        if rule.unit == 2:
            chance = draw_unit(example_key, 2 * index + 1)
            while words < len(rule.span_lengths) and chance >= rule.span_lengths[words - 1]:
                words += 1
        for word in range(first, min(first + words, units)):
            size = ends[word] - starts[word]
            is_apart = word > first and starts[word] != ends[word - 1]
            if is_apart or chosen[starts[word]] or size > left:
                break
            chosen[starts[word] : ends[word]] = True
            left -= size
    if left == wanted and units > 0:
        chosen[starts[drawn] : starts[drawn] + wanted] = True


@njit(cache=True)
def _replace(
    tokens: Any, example_key: Any, vocabulary: Any, chosen: Any, out: Any, total: Any
) -> Any:
    """Append the chosen positions and their replacements to `out`; return the new total."""
    ordinary = vocabulary.ordinary
    for position in range(len(tokens)):
        if chosen[position]:
            number = REPLACEMENT_DRAWS + np.uint64(2 * position)
            chance = draw_unit(example_key, number)
            token = np.int64(tokens[position])
            if chance < MASKED:
                token = np.int64(vocabulary.mask)
            elif chance < RANDOM:
                token = ordinary[draw_below(example_key, number + np.uint64(1), len(ordinary))]
            out.target[total], out.input[total] = position, token
            total += 1
    return total
