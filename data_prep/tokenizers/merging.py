"""Add up the word counts of all work units, in bounded memory; vocabularies are trained on the sum.

Reads the folders that `counting` writes. For tokenizer.min_documents the first groups that have a
word are remembered, as many as it asks for: a group may be in any number of documents and units.
"""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from data_prep.arrays import save_array
from data_prep.hashing import splitmix64
from data_prep.tokenizers.wordtable import WordTable, as_buffer


@dataclass(frozen=True)
class Limit:
    """The most distinct words in memory, and their most bytes; the rarest are dropped first."""

    words: int
    bytes: int


IN_MERGE = Limit(4_000_000, 64_000_000)  # about half a gigabyte
IN_TRAINING = Limit(800_000, 8_000_000)  # SentencePiece's unigram takes 120 bytes per byte


@dataclass(frozen=True)
class WordCounts:
    """Distinct words by falling count; words with equal counts are in byte order."""

    words: list[str]
    counts: list[int]
    total: int  # all occurrences, of dropped words too
    distinct: int  # distinct words, except those dropped to bound memory
    kept_out: int = 0  # distinct words that are in fewer than min_documents groups


@dataclass(frozen=True)
class Counted:
    """The counts of one work unit with W distinct words."""

    words: list[bytes]  # [W] sorted
    counts: NDArray[np.float64]  # [W] occurrences, weighted by source
    seen_in: NDArray[np.uint32]  # [W, min_documents] hashes of the groups with the word, then 0

    @classmethod
    def load(cls, folder: Path) -> "Counted":
        """Read the counts that `save` wrote."""
        words = (folder / "words").read_bytes().split(b"\xff")[:-1]
        return cls(words, np.load(folder / "counts.npy"), np.load(folder / "seen_in.npy"))

    def save(self, folder: Path) -> None:
        """Write the counts to `folder`."""
        (folder / "words").write_bytes(as_buffer(self.words).tobytes())
        save_array(folder / "counts.npy", self.counts)
        save_array(folder / "seen_in.npy", self.seen_in)


def hash_groups(groups: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """Return a hash that is never 0 for each group.

    Two groups with the same hash count as one, which errs on the side of privacy.
    """
    hashed: NDArray[np.uint64] = splitmix64(groups, np.uint64(0)) >> np.uint64(32)
    return np.maximum(hashed, np.uint64(1)).astype(np.uint32)


@njit(cache=True)  # type: ignore[untyped-decorator]
def remember(groups: NDArray[np.uint32], group: np.uint32) -> None:
    """Add a group to the first ones of a word, in place, unless it is there or they are full."""
    for place in range(groups.size):
        if groups[place] == group:
            return
        if groups[place] == 0:
            groups[place] = group
            return


@njit(cache=True)  # type: ignore[untyped-decorator]
def _remember_all(
    known: NDArray[np.uint32], numbers: NDArray[np.int32], more: NDArray[np.uint32]
) -> None:
    """Add the groups of a unit's words `numbers` [W] to those known, in place."""
    for word in range(numbers.size):
        for group in more[word]:
            if group != 0:
                remember(known[numbers[word]], group)


def merge(
    folders: Iterable[Path],
    min_documents: int = 1,
    in_merge: Limit = IN_MERGE,
    in_training: Limit = IN_TRAINING,
) -> WordCounts:
    """Add up the counts of work units, in corpus order.

    Words in fewer than `min_documents` groups are left out. If the words exceed `in_merge`, the
    rarest are dropped; the result has at most `in_training` words.
    """
    most = min_documents if min_documents > 1 else 0
    table, totals, seen_in = WordTable(), np.zeros(0), np.zeros((0, most), np.uint32)
    total = 0.0
    for folder in folders:
        piece = Counted.load(folder)
        numbers, _ = table.number(as_buffer(piece.words), len(piece.words))
        assert numbers.size == len(piece.words), "a counted word contains white space"
        totals, seen_in = (_lengthened(each, len(table)) for each in (totals, seen_in))
        totals[numbers] += piece.counts
        _remember_all(seen_in, numbers, piece.seen_in)
        total += float(piece.counts.sum())
        if len(table) > in_merge.words or table.size > in_merge.bytes:
            words = table.words()
            kept = most_frequent(words, totals, Limit(in_merge.words // 2, in_merge.bytes // 2))
            totals, seen_in = totals[kept], seen_in[kept]
            table = WordTable()
            table.number(as_buffer([words[index] for index in kept.tolist()]), len(kept))
    words = table.words()
    counts = np.rint(totals).astype(np.int64)  # fractional only if sources have weights
    seldom = (seen_in == 0).any(axis=1)
    counts[seldom] = 0
    kept = most_frequent(words, counts, in_training)
    return WordCounts(
        [words[index].decode() for index in kept.tolist()],
        counts[kept].tolist(),
        round(total),
        len(words),
        int(seldom.sum()),
    )


def most_frequent(words: list[bytes], totals: NDArray[Any], limit: Limit) -> NDArray[np.int64]:
    """Return the indices of the most frequent words within `limit`, by falling count.

    Of words with equal counts that do not all fit, a fair sample is taken (by hash): in scripts
    without spaces a word is a clause, most clauses occur once, and the first in byte order would
    all begin with the same few characters. Words with equal counts are returned in byte order.
    Words with count 0 are left out.
    """
    by_hash = np.argsort(np.array([zlib.crc32(word) for word in words], np.int64), kind="stable")
    order = by_hash[np.argsort(-totals[by_hash], kind="stable")]
    order = order[totals[order] > 0]
    sizes = np.cumsum([len(words[index]) for index in order.tolist()])
    kept = order[: min(limit.words, int(np.searchsorted(sizes, limit.bytes, side="right")))]
    in_order = sorted(kept.tolist(), key=lambda index: (-totals[index], words[index]))
    return np.array(in_order, np.int64)


def _lengthened(array: NDArray[Any], size: int) -> NDArray[Any]:
    more = np.zeros((size - len(array), *array.shape[1:]), array.dtype)
    return np.concatenate([array, more])
