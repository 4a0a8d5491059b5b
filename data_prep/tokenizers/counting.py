"""Count the words of document shards, in work units, and merge the counts in bounded memory.

Reads document shards. Each work unit writes `words` (sorted, each ended by 0xFF), `counts.npy`
(occurrences, weighted by source) and, for tokenizer.min_documents, hashes of the first groups that
have the word (`seen_in.npy`). A document without a group is a group of its own. Words are counted
as the trainer sees them: normalised, without white space.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numba import njit
from numpy.typing import NDArray
from tokenizers import pre_tokenizers

from data_prep.config import TokenizerConfig
from data_prep.corpus.shard_format import Section, ShardPart, group_parts, parts, read_sections
from data_prep.passes import Passes
from data_prep.text.scripts import SPACELESS
from data_prep.text.segmentation import separate_words
from data_prep.tokenizers.merging import Counted, WordCounts, hash_groups, merge, remember
from data_prep.tokenizers.normalise import bert_normaliser, sentencepiece_normaliser
from data_prep.tokenizers.words import words_cutter
from data_prep.tokenizers.wordtable import WordTable, as_buffer
from data_prep.work_units import WorkUnit

UNIT_BYTES = 16 << 20  # of shards: seconds of work
BLOCK = 1 << 20  # bytes of text numbered at once


def count_raw_words(texts: Iterable[str], punctuation_stands_alone: bool) -> Counter[str]:
    """Count the words between white space (and, if asked, ASCII punctuation), as written."""
    table = WordTable(punctuation_stands_alone)
    totals = np.zeros(0, np.int64)
    for block in _blocks(texts):
        found, _ = table.number(as_buffer(block), len(block))
        counts = np.bincount(found, minlength=len(table))
        counts[: totals.size] += totals
        totals = counts
    return Counter(
        {word.decode(): count for word, count in zip(table.words(), totals.tolist(), strict=True)}
    )


def _blocks(texts: Iterable[str]) -> Iterable[list[bytes]]:
    block: list[bytes] = []
    size = 0
    for text in texts:
        block.append(text.encode())
        size += len(block[-1])
        if size >= BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


def word_normaliser(config: TokenizerConfig) -> Callable[[str], list[str]]:
    """Return a function that splits text without white space into the words a trainer sees."""
    if config.kind == "wordpiece":
        bert = bert_normaliser(config.lowercase, config.strip_accents)
        cut = pre_tokenizers.BertPreTokenizer()
        symbols = re.compile("|".join(map(re.escape, config.user_symbols)) or r"(?!)")
        return lambda raw: [
            word
            for between in symbols.split(raw)
            for word, _ in cut.pre_tokenize_str(bert.normalize_str(between))
        ]
    plain = sentencepiece_normaliser(config.lowercase, config.strip_accents)
    if config.kind == "words":
        whole = words_cutter(spaced=False, segmented=True, symbols=config.user_symbols)
        return lambda raw: [
            word for word, _ in whole.pre_tokenize_str(plain.normalize_str(separate_words(raw)))
        ]
    if config.min_documents <= 1:
        return lambda raw: plain.normalize_str(raw).split()
    # In a script without spaces a whole clause would be one word, found in one document only.
    words = re.compile(rf"[{SPACELESS}]|[^\s{SPACELESS}]+")
    return lambda raw: words.findall(plain.normalize_str(raw))


@dataclass(frozen=True)
class _CountTask:
    parts: Sequence[ShardPart]
    config: TokenizerConfig


def _count_piece(task: _CountTask, folder: Path) -> None:
    config = task.config
    # A user symbol may contain punctuation, so it must be found before words are split there.
    table = WordTable(config.kind == "wordpiece" and not config.user_symbols)
    found: list[NDArray[np.int32]] = [np.zeros(0, np.int32)]
    lengths: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    weights: list[float] = []
    groups: list[int] = []
    for sections in _section_blocks(sections_of(task.parts)):
        block = ["\n".join(section.sentences).encode() for section in sections]
        numbers, ends = table.number(as_buffer(block), len(block))
        found.append(numbers)
        lengths.append(np.diff(ends, prepend=0))
        weights += [section.weight for section in sections]
        groups += [section.group_number for section in sections]
    words, starts, expanded = _normalised(table, word_normaliser(config))
    every, sizes = np.concatenate(found), np.concatenate(lengths)
    counts = _add_up(every, sizes, np.array(weights), starts, expanded, len(words))
    # A vocabulary for everybody counts no groups.
    most = config.min_documents if config.min_documents > 1 else 0
    seen_in = np.zeros((len(words), most), np.uint32)
    if most:
        hashed = hash_groups(np.array(groups, np.uint64))
        _find_groups(every, sizes, hashed, starts, expanded, seen_in)
    order = np.array(sorted(range(len(words)), key=words.__getitem__), np.int64)
    Counted([words[index] for index in order.tolist()], counts[order], seen_in[order]).save(folder)


def _normalised(
    table: WordTable, normalise: Callable[[str], list[str]]
) -> tuple[list[bytes], NDArray[np.int64], NDArray[np.int32]]:
    """Normalise the distinct words of a table.

    Returns the W normalised words, and for each word w of the table its normalised words'
    indices expanded[starts[w] : starts[w + 1]], as (words, starts, expanded).
    """
    numbers: dict[str, int] = {}
    starts, expanded = [0], []
    for raw in table.words():
        for word in normalise(raw.decode()):
            expanded.append(numbers.setdefault(word, len(numbers)))
        starts.append(len(expanded))
    return [word.encode() for word in numbers], np.array(starts), np.array(expanded, np.int32)


@njit(cache=True)  # type: ignore[untyped-decorator]
def _add_up(
    found: NDArray[np.int32],
    lengths: NDArray[np.int64],
    weights: NDArray[np.float64],
    starts: NDArray[np.int64],
    expanded: NDArray[np.int32],
    words: int,
) -> NDArray[np.float64]:
    """Return the weighted count of each normalised word [W].

    found: table words of all sections; lengths, weights: one value per section.
    """
    counts = np.zeros(words)
    position = 0
    for section in range(lengths.size):
        for raw in found[position : position + lengths[section]]:
            for index in range(starts[raw], starts[raw + 1]):
                counts[expanded[index]] += weights[section]
        position += lengths[section]
    return counts


@njit(cache=True)  # type: ignore[untyped-decorator]
def _find_groups(
    found: NDArray[np.int32],
    lengths: NDArray[np.int64],
    groups: NDArray[np.uint32],
    starts: NDArray[np.int64],
    expanded: NDArray[np.int32],
    seen_in: NDArray[np.uint32],
) -> None:
    """Write the first groups that have each normalised word to `seen_in` [W, most], in place.

    groups: hash of each section's group. The other arguments are those of `_add_up`.
    """
    position = 0
    for section in range(lengths.size):
        for raw in found[position : position + lengths[section]]:
            for index in range(starts[raw], starts[raw + 1]):
                remember(seen_in[expanded[index]], groups[section])
        position += lengths[section]


def _section_blocks(sections: Iterable[Section]) -> Iterator[list[Section]]:
    block: list[Section] = []
    size = 0
    for section in sections:
        block.append(section)
        size += sum(map(len, section.sentences))
        if size >= BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


def sections_of(shard_parts: Iterable[ShardPart]) -> Iterator[Section]:
    """Yield the sections of several parts in order."""
    for part in shard_parts:
        yield from read_sections(part.path, part.start, part.end)


def grouped_parts(shards: Path, split: str) -> list[list[ShardPart]]:
    """Group the parts of a split into work units."""
    return group_parts(parts(shards, split), UNIT_BYTES)


def count_words(shards: Path, config: TokenizerConfig, passes: Passes) -> WordCounts:
    """Count the words of all training shards."""
    pieces = [
        WorkUnit(f"count-{number:06d}", _CountTask(group, config))
        for number, group in enumerate(grouped_parts(shards, "train"))
    ]
    folders = passes.run("count", pieces, _count_piece)
    passes.end_slices()
    return merge(folders, config.min_documents)
