"""Which documents and paragraphs repeat earlier ones, over the whole corpus in bounded memory.

Reads the tables of all segments, one at a time, never their text. Signatures go to files on disk,
equal ones to the same file, and these are joined one after another; the first in corpus order
survives. Copies of what is held out are gone from training by the same rule, since documents and
paragraphs are compared before anything is held out.
"""

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data_prep.config import CorpusConfig
from data_prep.corpus.clean_text import Bounds, CleanFile, Table, documents_of
from data_prep.corpus.minhash import SIGNATURE_VALUES, band_hashes, rows_per_band

SIGNED = np.dtype([("low", "<u8"), ("high", "<u8"), ("number", "<i8")])
HELD_ROWS = 1 << 17  # signatures in memory at a time: 3 MB, and again while they are sorted
COMPARED_ROWS = 1 << 15  # MinHash signatures in memory at a time: 512 bytes each
Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]


class SignatureTable:
    """Signatures of 128 bits with the numbers of what they belong to, in files below `scratch`.

    A bucket holds the signatures whose low half leaves the same remainder, and there are so many
    buckets that the distinct signatures of one fit into memory, however many there are in all.
    For 10 million rows the process takes 83 MB; with DuckDB, allowed 400 MB, it took 578.
    """

    def __init__(self, scratch: Path, most_rows: int):
        scratch.mkdir()
        self._scratch = scratch
        self._buckets = 1 + 2 * most_rows // HELD_ROWS  # half full, so that none is over
        self._held: list[Table] = []
        self._held_rows = 0

    def add(self, low: NDArray[np.uint64], high: NDArray[np.uint64], numbers: Numbers) -> None:
        """Append rows; of those with one signature, later ones have larger numbers."""
        rows = np.empty(len(low), SIGNED)
        rows["low"], rows["high"], rows["number"] = low, high, numbers
        self._held.append(rows)
        self._held_rows += len(rows)
        if self._held_rows >= HELD_ROWS:
            self._write()

    def _write(self) -> None:
        if self._held_rows == 0:
            return
        rows = np.concatenate(self._held)
        self._held, self._held_rows = [], 0
        bucket = rows["low"] % np.uint64(self._buckets)
        order = np.argsort(bucket, kind="stable")  # in its bucket, a row stays in corpus order
        numbers, starts = np.unique(bucket[order], return_index=True)
        for number, own in zip(numbers.tolist(), np.split(rows[order], starts[1:]), strict=True):
            with open(self._path(number), "ab") as stream:
                stream.write(own.tobytes())

    def _path(self, bucket: int) -> str:
        return os.path.join(self._scratch, f"{bucket:06d}")  # pathlib would intern every name

    def repeats(self) -> Iterator[tuple[Numbers, Numbers]]:
        """Batches of (number, smallest number with the same signature), where they differ."""
        self._write()
        for bucket in range(self._buckets):
            for numbers, firsts in _repeats_in(self._path(bucket)):
                for start in range(0, len(numbers), COMPARED_ROWS):
                    batch = slice(start, start + COMPARED_ROWS)
                    yield numbers[batch], firsts[batch]
        shutil.rmtree(self._scratch)


def _repeats_in(bucket: str) -> Iterator[tuple[Numbers, Numbers]]:
    """The repeats of one bucket, read in parts: one signature may fill it a thousand times."""
    if not os.path.exists(bucket):
        return
    known = np.empty(0, SIGNED)  # the first row of each signature read so far
    with open(bucket, "rb") as stream:
        while len(read := np.fromfile(stream, SIGNED, HELD_ROWS)):
            rows = np.concatenate((known, read))
            rows = rows[np.lexsort((rows["high"], rows["low"]))]  # stable: the first stays first
            same = np.zeros(len(rows), np.bool_)
            same[1:] = rows["low"][1:] == rows["low"][:-1]
            same[1:] &= rows["high"][1:] == rows["high"][:-1]
            known = rows[~same]
            firsts = known["number"][np.cumsum(~same) - 1]
            yield rows["number"][same], firsts[same]


def flag_repeats(
    segments: Sequence[CleanFile],
    bounds: Bounds,
    documents: Flags,
    paragraphs: Flags,
    config: CorpusConfig,
    scratch: Path,
) -> Counter[str]:
    """Set the flags of what repeats; returns how many documents were dropped and why."""
    dropped = Counter[str]()
    scratch.mkdir()
    if config.deduplicate != "none":
        dropped["duplicate"] = flag_equal_documents(
            segments, bounds, documents, scratch / "documents"
        )
    if config.near_duplicates is not None:
        dropped["near_duplicate"] = flag_near_documents(
            segments, bounds, documents, config.near_duplicates, scratch / "near"
        )
    if config.deduplicate == "paragraphs":
        flag_equal_paragraphs(segments, bounds, documents, paragraphs, scratch / "paragraphs")
    shutil.rmtree(scratch)
    return dropped


def flag_equal_documents(
    segments: Sequence[CleanFile], bounds: Bounds, dropped: Flags, scratch: Path
) -> int:
    """Drop every document that equals an earlier one; returns how many."""
    table = SignatureTable(scratch, bounds.documents[-1])
    for segment, first in zip(segments, bounds.documents, strict=False):
        rows = segment.sections()
        rows = rows[rows["section"] == 0]
        table.add(rows["low"], rows["high"], first + np.arange(len(rows)))
    for numbers, _ in table.repeats():
        dropped[numbers] = True
    return int(dropped.sum())


def flag_near_documents(
    segments: Sequence[CleanFile], bounds: Bounds, dropped: Flags, threshold: float, scratch: Path
) -> int:
    """Drop every document that is near an earlier one; returns how many.

    Documents that share a band are compared with the first of those that have it, so the work
    grows with the corpus and not with its square, however often one text is repeated.
    """
    rows = rows_per_band(threshold)
    table = SignatureTable(scratch, bounds.documents[-1] * (SIGNATURE_VALUES // rows))
    for number, segment in enumerate(segments):
        _, of_document, _ = bounds.slices(number)
        survives = np.flatnonzero(~dropped[of_document])
        for start in range(0, len(survives), COMPARED_ROWS):
            some = survives[start : start + COMPARED_ROWS]
            for band, hashes in enumerate(band_hashes(segment.signatures()[some], rows)):
                table.add(hashes, np.full_like(hashes, band), of_document.start + some)
    before = int(dropped.sum())
    for numbers, firsts in table.repeats():
        ours = gather_signatures(segments, bounds, numbers)
        theirs = gather_signatures(segments, bounds, firsts)
        dropped[numbers[(ours == theirs).mean(axis=1) >= threshold]] = True
    return int(dropped.sum()) - before


def gather_signatures(
    segments: Sequence[CleanFile], bounds: Bounds, documents: Numbers
) -> NDArray[np.uint32]:
    """The signatures of documents anywhere in the corpus."""
    gathered = np.empty((len(documents), SIGNATURE_VALUES), np.uint32)
    homes = np.searchsorted(bounds.documents, documents, side="right") - 1
    for home in np.unique(homes).tolist():
        chosen = np.flatnonzero(homes == home)
        gathered[chosen] = segments[home].signatures()[documents[chosen] - bounds.documents[home]]
    return gathered


def flag_equal_paragraphs(
    segments: Sequence[CleanFile], bounds: Bounds, documents: Flags, dropped: Flags, scratch: Path
) -> None:
    """Drop every paragraph of the surviving documents that equals an earlier one of theirs."""
    table = SignatureTable(scratch, bounds.paragraphs[-1])
    for number, segment in enumerate(segments):
        _, of_document, of_paragraph = bounds.slices(number)
        rows = segment.paragraphs()
        is_signed = (rows["low"] != 0) | (rows["high"] != 0)
        survives = ~paragraphs_of(segment, documents[of_document])
        chosen = np.flatnonzero(rows["begins"] & is_signed & survives)
        table.add(rows["low"][chosen], rows["high"][chosen], of_paragraph.start + chosen)
    for numbers, _ in table.repeats():
        dropped[numbers] = True
    for number, segment in enumerate(segments):
        own = dropped[bounds.slices(number)[2]]
        if own.any():  # the rest of a paragraph goes where its beginning goes
            begins = np.flatnonzero(segment.paragraphs()["begins"])
            own[:] = np.repeat(own[begins], np.diff(begins, append=len(own)))


def paragraphs_of(segment: CleanFile, documents: Flags) -> Flags:
    """The flags of a segment's documents, one for each of their paragraphs."""
    table = segment.sections()
    return np.repeat(documents[documents_of(table)], table["paragraphs"])
