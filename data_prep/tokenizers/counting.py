"""Count the words of document shards, in pieces, and merge the counts in bounded memory.

Reads document shards; writes, below a folder of pieces, `words` (sorted, each ended by 0xFF) and
`counts.npy`. What is counted are the words a trainer sees: normalised, without white space.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import pre_tokenizers

from data_prep.config import TokenizerConfig
from data_prep.pieces import Piece, make_pieces
from data_prep.shards import ShardPart, parts, read_sections
from data_prep.tokenizers.normalise import bert_normaliser, sentencepiece_normaliser
from data_prep.tokenizers.words import words_cutter
from data_prep.tokenizers.wordtable import WordTable, as_buffer

PARTS_A_PIECE = 4  # about 16 MB of text: seconds of work, and 64,000 files for a terabyte
BLOCK = 1 << 20  # bytes of text numbered at once


@dataclass(frozen=True)
class Limit:
    """How many distinct words are held, and bytes of them; the rarest go first."""

    words: int
    bytes: int


IN_MERGE = Limit(4_000_000, 64_000_000)  # about half a gigabyte
IN_TRAINING = Limit(800_000, 8_000_000)  # SentencePiece's unigram takes 120 bytes for each byte


@dataclass(frozen=True)
class WordCounts:
    """Distinct words, most frequent first and equally frequent ones in byte order."""

    words: list[str]
    counts: list[int]
    total: int  # words counted
    distinct: int  # different words among them, but for what a full memory dropped


def count_raw_words(texts: Iterable[str], punctuation_stands_alone: bool) -> Counter[str]:
    """How often each stretch between white space occurs in the texts, as it is written."""
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
    """What cuts a stretch between white space into the words a trainer sees."""
    if config.kind == "wordpiece":
        bert = bert_normaliser(config.lowercase, config.strip_accents)
        cut = pre_tokenizers.BertPreTokenizer()
        return lambda raw: [word for word, _ in cut.pre_tokenize_str(bert.normalize_str(raw))]
    plain = sentencepiece_normaliser(config.lowercase, config.strip_accents)
    if config.kind == "words":
        whole = words_cutter(spaced=False)
        return lambda raw: [word for word, _ in whole.pre_tokenize_str(plain.normalize_str(raw))]
    return lambda raw: plain.normalize_str(raw).split()


@dataclass(frozen=True)
class _CountTask:
    parts: Sequence[ShardPart]
    config: TokenizerConfig


def _count_piece(task: _CountTask, folder: Path) -> None:
    raw = count_raw_words(texts_of(task.parts), task.config.kind == "wordpiece")
    normalise = word_normaliser(task.config)
    counts: Counter[bytes] = Counter()
    for text, count in raw.items():
        for word in normalise(text):
            counts[word.encode()] += count
    words = sorted(counts)
    (folder / "words").write_bytes(as_buffer(words).tobytes())
    np.save(folder / "counts.npy", np.array([counts[word] for word in words], np.int64))


def texts_of(shard_parts: Iterable[ShardPart]) -> Iterable[str]:
    """The sections' text, a sentence a line."""
    for part in shard_parts:
        for section in read_sections(part.path, part.start, part.end):
            yield "\n".join(section.sentences)


def grouped_parts(shards: Path, split: str) -> list[list[ShardPart]]:
    """A split's parts by the piece of work they belong to."""
    all_parts = parts(shards, split)
    return [
        all_parts[first : first + PARTS_A_PIECE]
        for first in range(0, len(all_parts), PARTS_A_PIECE)
    ]


def count_words(
    shards: Path, config: TokenizerConfig, pieces_root: Path, workers: int
) -> WordCounts:
    """The words of all training shards."""
    pieces = [
        Piece(f"count-{number:06d}", _CountTask(group, config))
        for number, group in enumerate(grouped_parts(shards, "train"))
    ]
    return merge(make_pieces(pieces, _count_piece, pieces_root, workers, "counting words"))


def merge(
    folders: Iterable[Path], in_merge: Limit = IN_MERGE, in_training: Limit = IN_TRAINING
) -> WordCounts:
    """Add up the pieces' counts in their order; what is too rare for memory is dropped."""
    table, totals, total = WordTable(), np.zeros(0, np.int64), 0
    for folder in folders:
        counts = np.load(folder / "counts.npy", allow_pickle=False)
        buffer = np.frombuffer((folder / "words").read_bytes(), np.uint8)
        numbers, _ = table.number(buffer, counts.size)
        assert numbers.size == counts.size, "a counted word contains white space"
        totals = np.concatenate([totals, np.zeros(len(table) - totals.size, np.int64)])
        totals[numbers] += counts
        total += int(counts.sum())
        if len(table) > in_merge.words or table.size > in_merge.bytes:
            words, totals = most_frequent(
                table, totals, Limit(in_merge.words // 2, in_merge.bytes // 2)
            )
            table = WordTable()
            table.number(as_buffer(words), len(words))
    words, kept = most_frequent(table, totals, in_training)
    return WordCounts([word.decode() for word in words], kept.tolist(), total, len(table))


def most_frequent(
    table: WordTable, totals: NDArray[np.int64], limit: Limit
) -> tuple[list[bytes], NDArray[np.int64]]:
    """The most frequent words and their counts; byte order decides between equals."""
    words = table.words()
    by_word = np.array(sorted(range(len(words)), key=words.__getitem__), np.int64)
    order = by_word[np.argsort(-totals[by_word], kind="stable")]
    sizes = np.cumsum([len(words[index]) for index in order.tolist()])
    kept = order[: min(limit.words, int(np.searchsorted(sizes, limit.bytes, side="right")))]
    return [words[index] for index in kept.tolist()], totals[kept]
