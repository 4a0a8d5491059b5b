"""Add up the word counts of pieces, in bounded memory, to what vocabularies are trained on.

Reads the folders that `counting` writes. A document may go on from one piece to the next; the words
it has in both are not taken for two documents.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_prep.tokenizers.wordtable import WordTable, as_buffer


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
    kept_out: int = 0  # of these, in too few documents


@dataclass(frozen=True)
class Counted:
    """What one piece counted; places are those of its words."""

    words: list[bytes]
    counts: NDArray[np.float64]
    documents: NDArray[np.int64]
    edges: NDArray[np.bool_]  # [2, words]: in the piece's first document, in its last
    first_document: int
    last_document: int

    @classmethod
    def load(cls, folder: Path) -> "Counted":
        """Read a piece back."""
        words = (folder / "words").read_bytes().split(b"\xff")[:-1]
        counts, documents, edges, span = (
            np.load(folder / f"{name}.npy", allow_pickle=False)
            for name in ("counts", "documents", "edges", "span")
        )
        return cls(words, counts, documents, edges, *span.tolist())

    def save(self, folder: Path) -> None:
        """Write the piece."""
        (folder / "words").write_bytes(as_buffer(self.words).tobytes())
        np.save(folder / "counts.npy", self.counts)
        np.save(folder / "documents.npy", self.documents)
        np.save(folder / "edges.npy", self.edges)
        np.save(folder / "span.npy", np.array([self.first_document, self.last_document]))


@dataclass
class OpenDocument:
    """The document in which the pieces so far end; the next may go on with it."""

    number: int = -1
    words: set[bytes] = field(default_factory=set)

    def go_on(self, piece: Counted) -> list[int]:
        """Take in the next piece; returns places of its words that this document had before."""
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
    """Add up the pieces' counts in their order; what is too rare for memory is dropped."""
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
    counts = np.rint(totals).astype(np.int64)  # whole already, but where sources have weights
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
    """The numbers of the most frequent words; byte order decides between equals."""
    by_word = np.array(sorted(range(len(words)), key=words.__getitem__), np.int64)
    order = by_word[np.argsort(-totals[by_word], kind="stable")]
    order = order[totals[order] > 0]
    sizes = np.cumsum([len(words[index]) for index in order.tolist()])
    return order[: min(limit.words, int(np.searchsorted(sizes, limit.bytes, side="right")))]


def _lengthened(array: NDArray[Any], size: int) -> NDArray[Any]:
    return np.concatenate([array, np.zeros(size - array.size, array.dtype)])
