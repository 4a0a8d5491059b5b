"""Check that the written rows follow every rule of pairs, lengths and masks.

Each row is checked by itself (`check_chunk`). Random choices (pair labels, the 80/10/10 of masks)
are checked over all rows: the counts must be within `SIGMAS` standard deviations of their
expectation. Deterministic rules (forced random partners, rounded and capped mask counts) are
checked exactly. Reads `<split>-*.tar`, writes nothing; raises SesameError at a violation.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_prep.errors import SesameError
from data_prep.examples.chunks import Chunk, ChunkStore
from data_prep.examples.config import ExamplesConfig
from data_prep.examples.masking import MASKED, RANDOM, MaskRule, Vocabulary
from data_prep.examples.reuse import Reuse
from data_prep.tokenizers import Tokenizer

Array = NDArray[Any]
Flags = NDArray[np.bool_]

SIGMAS = 6.0
MOST_ROWS = 2_000_000  # of a larger split, an evenly spaced sample of chunks is checked


@dataclass
class Rules:
    """The settings that rows are checked against: V tokens in the vocabulary."""

    config: ExamplesConfig
    tokenizer: Tokenizer
    masks: MaskRule  # of the split that is checked
    vocabulary: Vocabulary = field(init=False)
    is_ordinary: Flags = field(init=False)  # [V] may be a random replacement
    is_structure: Flags = field(init=False)  # [V] special token that never comes from text

    def __post_init__(self) -> None:
        tokenizer = self.tokenizer
        self.vocabulary = Vocabulary.of(tokenizer)
        self.is_ordinary = np.zeros(tokenizer.size, np.bool_)
        self.is_ordinary[self.vocabulary.ordinary] = True
        self.is_structure = np.zeros(tokenizer.size, np.bool_)
        self.is_structure[[tokenizer.pad, tokenizer.cls, tokenizer.sep, tokenizer.mask]] = True


@dataclass
class Draws:
    """Counts of the outcomes of random choices, over all rows checked."""

    rows: int = 0
    coins: int = 0
    other: int = 0  # coins that gave label 1
    predictions: int = 0
    masked: int = 0
    kept: int = 0

    def add(self, other: "Draws") -> None:
        """Add the counts of other rows."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


def validate(folder: Path, split: str, rules: Rules, reuse: Reuse | None = None) -> Draws:
    """Check the rows of a split: all, or an evenly spaced sample of about `MOST_ROWS`.

    `reuse` has counted all rows of next-sentence pairs.
    """
    store = ChunkStore(folder, split)
    draws = check_rows(store, sampled_chunks(store.chunks, store.rows).tolist(), rules)
    refuse_implausible(folder, split, draws, rules, reuse)
    return draws


def sampled_chunks(chunks: int, rows: int) -> NDArray[np.int64]:
    """Return the numbers of the chunks that are checked, of a split with so many chunks and rows.

    All, or an evenly spaced sample with about `MOST_ROWS` rows.
    """
    count = min(chunks, 1 + int(chunks * min(1.0, MOST_ROWS / max(rows, 1))))
    return np.unique(np.linspace(0, chunks - 1, count).astype(np.int64))


def check(store: ChunkStore, numbers: Iterable[int], rules: Rules) -> Draws:
    """Check these chunks: every row by itself, then the random choices over all of them.

    Raises SesameError at the first violation.
    """
    draws = check_rows(store, numbers, rules)
    refuse_implausible(store.folder, store.split, draws, rules)
    return draws


def check_rows(
    store: ChunkStore, numbers: Iterable[int], rules: Rules, folder: Path | None = None
) -> Draws:
    """Check every row of these chunks by itself; return the counts of their random choices.

    Raises SesameError at the first violation. folder: see `violation`.
    """
    if store.vocab_size != rules.tokenizer.size:
        raise SesameError(
            f"{store.folder}: its {store.split} examples have a vocabulary of {store.vocab_size} "
            f"tokens, the tokenizer has {rules.tokenizer.size}; use the tokenizer they were made "
            "with"
        )
    draws = Draws()
    for number in numbers:
        chunk = store.read(number)
        found = check_chunk(chunk, rules)
        if found is not None:
            raise violation(store, number, *found, folder)
        _count_draws(chunk, rules.vocabulary.mask, draws)
    return draws


def refuse_implausible(
    folder: Path, split: str, draws: Draws, rules: Rules, reuse: Reuse | None = None
) -> None:
    """Raise SesameError if the random choices of all checked rows are not plausible."""
    problem = None if reuse is None else reuse.problem()
    if problem is not None:
        raise SesameError(f"{folder / split}-*.tar: {problem}")
    problem = _implausible(draws, len(rules.vocabulary.ordinary))
    if problem is not None:
        raise SesameError(
            f"{folder / split}-*.tar: {problem}; remove this output and make the examples again, "
            "and if that does not help report a bug"
        )


def violation(
    store: ChunkStore, number: int, row: int, what: str, folder: Path | None = None
) -> SesameError:
    """Return the error for a row that breaks a rule; `number` is the chunk, `what` the rule.

    folder: where the tar will be, if it is elsewhere now.
    """
    tar = store.path_of(number)
    return SesameError(
        f"{(folder or tar.parent) / tar.name}: chunk {number}, row {row}: {what}; "
        "remove this output and make the examples again, and if that does not help report a bug"
    )


def shard_chunks(tar: Path) -> range:
    """Return the range of chunk numbers in one shard file, from its index."""
    index = json.loads(tar.with_name(f"{tar.name}.index.json").read_bytes())
    return range(index["first"], index["first"] + len(index["chunks"]))


def check_chunk(chunk: Chunk, rules: Rules) -> tuple[int, str] | None:
    """Return the first row that breaks a rule and a description, or None."""
    found = _check_rows(chunk, rules.config)
    if found is not None:
        return found
    for is_wrong, what in _example_rules(chunk, rules):
        if is_wrong.any():
            example = int(np.argmax(is_wrong))
            return int(np.searchsorted(chunk.row_examples, example, "right")) - 1, what
    return None


def _check_rows(chunk: Chunk, config: ExamplesConfig) -> tuple[int, str] | None:
    row_tokens = np.diff(chunk.example_tokens[chunk.row_examples])
    is_long = row_tokens > config.max_seq_length
    if is_long.any():
        row = int(np.argmax(is_long))
        what = f"it has {row_tokens[row]} tokens, more than {config.max_seq_length}"
        return row, what
    is_shared = np.diff(chunk.row_examples) > 1
    if not config.packing and is_shared.any():
        return int(np.argmax(is_shared)), "it has several examples though packing is off"
    return None


def _example_rules(chunk: Chunk, rules: Rules) -> Iterable[tuple[Flags, str]]:
    """Yield, per rule, the examples that break it [E] and a description of the violation."""
    tokenizer, pairs = rules.tokenizer, rules.config.pairs
    starts, lengths = chunk.example_tokens[:-1], np.diff(chunk.example_tokens)
    second = chunk.second.astype(np.int64)
    yield chunk.tokens[starts] != tokenizer.cls, "an example does not start with [CLS]"
    yield (
        chunk.tokens[starts + lengths - 1] != tokenizer.sep,
        "an example does not end with [SEP]",
    )
    if pairs == "none":
        yield second != lengths, "an example has a second segment though pairs are off"
        yield lengths < 3, "an example is empty"
    else:
        yield (second < 3) | (lengths - second < 2), "a segment is empty"
        yield chunk.tokens[starts + second - 1] != tokenizer.sep, "no [SEP] between the segments"
    is_structure = rules.is_structure[chunk.tokens]
    counts = np.add.reduceat(is_structure, starts, dtype=np.int64)
    yield counts != (2 if pairs == "none" else 3), "a special token is inside a segment"
    yield from _pair_rules(chunk, pairs)
    if chunk.target is not None:
        yield from _mask_rules(chunk, rules)


def _pair_rules(chunk: Chunk, pairs: str) -> Iterable[tuple[Flags, str]]:
    label, coin = chunk.label, chunk.coin
    is_same = chunk.documents[:, 0] == chunk.documents[:, 1]
    if pairs == "none":
        yield (label != -1) | (coin != 0), "an example has a pair label though pairs are off"
        yield ~is_same, "an example has text of two documents"
        return
    yield (label != 0) & (label != 1), "a pair label is neither 0 nor 1"
    yield (coin != 0) & (coin != 1), "coin is neither 0 nor 1"
    if pairs == "nsp":
        yield (label == 1) & is_same, "a random segment is from the same document"
        yield (label == 0) & ~is_same, "a next segment is from another document"
        yield (coin == 0) & (label == 0), "a next segment was not chosen by the coin"
    else:
        yield ~is_same, "a pair has text of two documents"
        yield coin == 0, "an order was not chosen by the coin"


def _mask_rules(chunk: Chunk, rules: Rules) -> Iterable[tuple[Flags, str]]:
    assert chunk.target is not None and chunk.target_examples is not None
    assert chunk.input is not None
    vocabulary, rule = rules.vocabulary, rules.masks
    starts, counts = chunk.example_tokens[:-1], np.diff(chunk.target_examples)
    example = np.repeat(np.arange(chunk.examples), counts)
    places = starts[example] + chunk.target.astype(np.int64)
    originals = chunk.tokens[places]

    def of_targets(is_wrong: Flags) -> Flags:
        return np.bincount(example[is_wrong], minlength=chunk.examples) > 0

    is_repeated = np.diff(places, prepend=-1) <= 0
    yield of_targets(is_repeated), "predictions are not in ascending order"
    yield of_targets(vocabulary.special[originals]), "a special token is a target"
    is_known = (chunk.input == vocabulary.mask) | (chunk.input == originals)
    is_known |= rules.is_ordinary[chunk.input]
    yield of_targets(~is_known), "a random replacement is not an ordinary token"

    is_maskable = ~vocabulary.special[chunk.tokens]
    maskable = np.add.reduceat(is_maskable, starts, dtype=np.int64)
    missing = rule.predictions(maskable) - counts
    if rule.unit == "token":
        yield missing != 0, "the number of predictions is not what rate and cap imply"
        return
    yield missing < 0, "there are more predictions than rate and cap allow"
    is_word_start = vocabulary.starts_word[chunk.tokens]
    if chunk.word_flips is not None:
        is_word_start ^= chunk.word_flips.astype(np.bool_)
    is_word_start |= ~is_maskable
    is_word_start[1:] |= ~is_maskable[:-1]
    word = np.cumsum(is_word_start) - 1
    word_starts = np.flatnonzero(is_word_start)
    sizes = np.diff(word_starts, append=len(chunk.tokens))
    chosen = np.bincount(word[places], minlength=len(sizes))
    word_example = np.searchsorted(chunk.example_tokens, word_starts, "right") - 1

    def of_words(is_wrong: Flags) -> Flags:
        return np.bincount(word_example[is_wrong], minlength=chunk.examples) > 0

    is_word = is_maskable[word_starts]
    shortest = np.full(chunk.examples, len(chunk.tokens))
    np.minimum.at(shortest, word_example[is_word], sizes[is_word])
    has_fitting = shortest <= rule.predictions(maskable)
    is_partial = (chosen > 0) & (chosen < sizes) & has_fitting[word_example]
    yield of_words(is_partial), "a word is predicted only in part though another would have fitted"
    yield ~has_fitting & (missing > 0), "there are too few predictions"
    is_free = (chosen == 0) & is_word
    yield (
        of_words(is_free & (sizes <= missing[word_example])),
        "there are too few predictions: one more word would have fitted",
    )


def _count_draws(chunk: Chunk, mask: int, draws: Draws) -> None:
    draws.rows += chunk.rows
    draws.coins += int(chunk.coin.sum())
    draws.other += int(((chunk.coin == 1) & (chunk.label == 1)).sum())
    if chunk.target is None or chunk.target_examples is None or chunk.input is None:
        return
    places = np.repeat(chunk.example_tokens[:-1], np.diff(chunk.target_examples)) + chunk.target
    draws.predictions += len(chunk.target)
    draws.masked += int((chunk.input == mask).sum())
    draws.kept += int((chunk.input == chunk.tokens[places]).sum())


def _implausible(draws: Draws, ordinary: int) -> str | None:
    """Describe the first count that is too far from its expectation, or return None."""
    kept = 1 - RANDOM
    by_accident = (RANDOM - MASKED) / ordinary  # a random token may equal the original
    for what, count, of, low, high in (
        ("pairs with label 1 by coin", draws.other, draws.coins, 0.5, 0.5),
        ("predictions shown as [MASK]", draws.masked, draws.predictions, MASKED, MASKED),
        ("predictions left as they are", draws.kept, draws.predictions, kept, kept + by_accident),
    ):
        least = of * low - SIGMAS * sqrt(of * low * (1 - low))
        most = of * high + SIGMAS * sqrt(of * high * (1 - high))
        if not least <= count <= most:
            return f"{count} of {of} {what}, expected {least:.0f} to {most:.0f}"
    return None
