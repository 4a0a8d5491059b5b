"""Add up the word counts of all work units, in bounded memory; vocabularies are trained on the sum.

Reads the folders that `counting` writes. A document may span several work units; a word that it has
in more than one of them is counted for one document.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_prep.arrays import save_array
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
    kept_out: int = 0  # distinct words that are in fewer than min_documents documents


@dataclass(frozen=True)
class Counted:
    """The counts of one work unit with W distinct words."""

    words: list[bytes]  # [W] sorted
    counts: NDArray[np.float64]  # [W] occurrences, weighted by source
    documents: NDArray[np.int64]  # [W] documents with the word
    edges: NDArray[np.bool_]  # [2, W] is the word in the unit's first document, in its last
    first_document: int
    last_document: int

    @classmethod
    def load(cls, folder: Path) -> "Counted":
        """Read the counts that `save` wrote."""
        words = (folder / "words").read_bytes().split(b"\xff")[:-1]
        counts, documents, edges, span = (
            np.load(folder / f"{name}.npy", allow_pickle=False)
            for name in ("counts", "documents", "edges", "span")
        )
        return cls(words, counts, documents, edges, *span.tolist())

    def save(self, folder: Path) -> None:
        """Write the counts to `folder`."""
        (folder / "words").write_bytes(as_buffer(self.words).tobytes())
        save_array(folder / "counts.npy", self.counts)
        save_array(folder / "documents.npy", self.documents)
        save_array(folder / "edges.npy", self.edges)
        save_array(folder / "span.npy", np.array([self.first_document, self.last_document]))


@dataclass
class OpenDocument:
    """The last document of the work units read so far; the next unit may continue it."""

    number: int = -1
    words: set[bytes] = field(default_factory=set)

    def go_on(self, piece: Counted) -> list[int]:
        """Read the next work unit; return the indices of its words counted before.

        These are words of its first document, if that continues this document, which had them.
        """
        in_first, in_last = (np.flatnonzero(edge).tolist() for edge in piece.edges)
        again = []
        if piece.first_document == self.number:
            again = [place for place in in_first if piece.words[place] in self.words]
        if piece.last_document != self.number:
            self.number, self.words = piece.last_document, set()
        self.words.update(piece.words[place] for place in in_last)
        return again


def merge(
    folders: Iterable[Path],
    min_documents: int = 1,
    in_merge: Limit = IN_MERGE,
    in_training: Limit = IN_TRAINING,
) -> WordCounts:
    """Add up the counts of work units, in corpus order.

    Words in fewer than `min_documents` documents are left out. If the words exceed `in_merge`, the
    rarest are dropped; the result has at most `in_training` words.
    """
    table, totals, documents = WordTable(), np.zeros(0), np.zeros(0, np.int64)
    total, last = 0.0, OpenDocument()
    for folder in folders:
        piece = Counted.load(folder)
        piece.documents[last.go_on(piece)] -= 1
        numbers, _ = table.number(as_buffer(piece.words), len(piece.words))
        assert numbers.size == len(piece.words), "a counted word contains white space"
        totals, documents = (_lengthened(each, len(table)) for each in (totals, documents))
        totals[numbers] += piece.counts
        documents[numbers] += piece.documents
        total += float(piece.counts.sum())
        if len(table) > in_merge.words or table.size > in_merge.bytes:
            words = table.words()
            kept = most_frequent(words, totals, Limit(in_merge.words // 2, in_merge.bytes // 2))
            totals, documents = totals[kept], documents[kept]
            table = WordTable()
            table.number(as_buffer([words[index] for index in kept.tolist()]), len(kept))
    words = table.words()
    counts = np.rint(totals).astype(np.int64)  # fractional only if sources have weights
    seldom = documents < min_documents
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

    Ties are in byte order. Words with count 0 are left out.
    """
    by_word = np.array(sorted(range(len(words)), key=words.__getitem__), np.int64)
    order = by_word[np.argsort(-totals[by_word], kind="stable")]
    order = order[totals[order] > 0]
    sizes = np.cumsum([len(words[index]) for index in order.tolist()])
    return order[: min(limit.words, int(np.searchsorted(sizes, limit.bytes, side="right")))]


def _lengthened(array: NDArray[Any], size: int) -> NDArray[Any]:
    return np.concatenate([array, np.zeros(size - array.size, array.dtype)])
