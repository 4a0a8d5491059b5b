"""Count the words of document shards, in work units, and merge the counts in bounded memory.

Reads document shards. Each work unit writes `words` (sorted, each ended by 0xFF), `counts.npy`
(occurrences, weighted by source) and the number of documents per word (`documents.npy`,
`edges.npy`). Words are counted as the trainer sees them: normalised, without white space.
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
from data_prep.corpus.shard_format import Section, ShardPart, parts, read_sections
from data_prep.text.scripts import SPACELESS
from data_prep.tokenizers.merging import Counted, WordCounts, merge
from data_prep.tokenizers.normalise import bert_normaliser, sentencepiece_normaliser
from data_prep.tokenizers.words import words_cutter
from data_prep.tokenizers.wordtable import WordTable, as_buffer
from data_prep.work_units import WorkUnit, run_units

PARTS_A_PIECE = 4  # about 16 MB of text: seconds of work, and 64,000 files for a terabyte
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
        whole = words_cutter(spaced=False)
        return lambda raw: [word for word, _ in whole.pre_tokenize_str(plain.normalize_str(raw))]
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
    documents: list[int] = []
    for sections in _section_blocks(sections_of(task.parts)):
        block = ["\n".join(section.sentences).encode() for section in sections]
        numbers, ends = table.number(as_buffer(block), len(block))
        found.append(numbers)
        lengths.append(np.diff(ends, prepend=0))
        weights += [section.weight for section in sections]
        documents += [section.document for section in sections]
    words, starts, expanded = _normalised(table, word_normaliser(config))
    counts, seen_in, edges = _add_up(
        np.concatenate(found), np.concatenate(lengths), np.array(weights, np.float64),
        np.array(documents, np.int64), starts, expanded, len(words),
    )  # fmt: skip
    order = np.array(sorted(range(len(words)), key=words.__getitem__), np.int64)
    Counted(
        [words[index] for index in order.tolist()],
        counts[order], seen_in[order], edges[:, order], documents[0], documents[-1],
    ).save(folder)  # fmt: skip


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
    documents: NDArray[np.int64],
    starts: NDArray[np.int64],
    expanded: NDArray[np.int32],
    words: int,
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.bool_]]:
    """Count the normalised words.

    found: table words of all sections; lengths, weights, documents: one value per section.
    Returns per word the weighted count [W], the number of documents [W], and whether it is in the
    first and in the last document [2, W].
    """
    counts, seen_in = np.zeros(words), np.zeros(words, np.int64)
    latest = np.full(words, -1, np.int64)  # last document with the word
    edges = np.zeros((2, words), np.bool_)
    position = 0
    for section in range(lengths.size):
        document, weight = documents[section], weights[section]
        for raw in found[position : position + lengths[section]]:
            for index in range(starts[raw], starts[raw + 1]):
                word = expanded[index]
                counts[word] += weight
                if latest[word] != document:
                    latest[word] = document
                    seen_in[word] += 1
                    edges[0, word] |= document == documents[0]
                    edges[1, word] |= document == documents[-1]
        position += lengths[section]
    return counts, seen_in, edges


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


def texts_of(shard_parts: Iterable[ShardPart]) -> Iterable[str]:
    """Yield the text of each section, one sentence per line."""
    for section in sections_of(shard_parts):
        yield "\n".join(section.sentences)


def grouped_parts(shards: Path, split: str) -> list[list[ShardPart]]:
    """Group the parts of a split into work units."""
    all_parts = parts(shards, split)
    return [
        all_parts[first : first + PARTS_A_PIECE]
        for first in range(0, len(all_parts), PARTS_A_PIECE)
    ]


def count_words(
    shards: Path, config: TokenizerConfig, pieces_root: Path, workers: int
) -> WordCounts:
    """Count the words of all training shards; work units are stored below `pieces_root`."""
    pieces = [
        WorkUnit(f"count-{number:06d}", _CountTask(group, config))
        for number, group in enumerate(grouped_parts(shards, "train"))
    ]
    folders = run_units(pieces, _count_piece, pieces_root, workers, "counting words")
    return merge(folders, config.min_documents)
