"""Find documents and paragraphs that repeat earlier ones, over the whole corpus.

Reads the tables of all clean files, one at a time, never their text. Memory is bounded: signatures
are distributed over bucket files on disk, equal signatures to the same bucket, and the buckets are
processed one after another. The first copy in corpus order survives. Deduplication runs before the
held-out sections are chosen, so no copy of a held-out text is left in training.
"""

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data_prep.config import CorpusConfig
from data_prep.corpus.clean_files import Bounds, CleanFile, Flags, Table, documents_of
from data_prep.corpus.minhash import SIGNATURE_VALUES, band_hashes, rows_per_band

SIGNED = np.dtype([("low", "<u8"), ("high", "<u8"), ("number", "<i8")])
HELD_ROWS = 1 << 17  # signatures in memory at a time: 3 MB, twice that while they are sorted
MOST_BUCKETS = 256  # files that one flush of the rows in memory may open
COMPARED_ROWS = 1 << 15  # MinHash signatures in memory at a time: 512 bytes each
PAIR = np.dtype([("number", "<i8"), ("first", "<i8")])
SIGNED_PAIR = np.dtype([("number", "<i8"), ("signature", "<u4", SIGNATURE_VALUES)])
Numbers = NDArray[np.int64]
Signatures = NDArray[np.uint32]


class SignatureTable:
    """128-bit signatures, each with the number of its document or paragraph, in bucket files.

    The bucket of a signature follows from its low half. `most_rows` bounds the rows that will be
    added; the number of buckets follows from it, so that the distinct signatures of one bucket fit
    into memory. More than MOST_BUCKETS are made in two levels: `repeats` divides each bucket again,
    so the number of times a file is opened grows linearly with the rows. Creates the folder
    `scratch`; `repeats` removes it.
    For 10 million rows the process takes 83 MB (DuckDB with a limit of 400 MB took 578 MB).
    """

    def __init__(self, scratch: Path, most_rows: int, divisor: int = 1):
        scratch.mkdir()
        self._scratch = scratch
        wanted = 1 + 2 * most_rows // HELD_ROWS  # half full on average: room for variance
        self._buckets = min(wanted, MOST_BUCKETS)
        self._divisor = divisor  # number of buckets of the level above
        self._is_divided = wanted > MOST_BUCKETS and divisor == 1
        self._held: list[Table] = []
        self._held_rows = 0

    def add(self, low: NDArray[np.uint64], high: NDArray[np.uint64], numbers: Numbers) -> None:
        """Append rows [N]. Rows with equal signatures must be added in ascending `numbers`."""
        rows = np.empty(len(low), SIGNED)
        rows["low"], rows["high"], rows["number"] = low, high, numbers
        self._add(rows)

    def _add(self, rows: Table) -> None:
        self._held.append(rows)
        self._held_rows += len(rows)
        if self._held_rows >= HELD_ROWS:
            self._write()

    def _write(self) -> None:
        if self._held_rows == 0:
            return
        rows = np.concatenate(self._held)
        self._held, self._held_rows = [], 0
        bucket = rows["low"] // np.uint64(self._divisor) % np.uint64(self._buckets)
        order = np.argsort(bucket, kind="stable")  # keeps corpus order inside each bucket
        numbers, starts = np.unique(bucket[order], return_index=True)
        for number, own in zip(numbers.tolist(), np.split(rows[order], starts[1:]), strict=True):
            with open(self._path(number), "ab") as stream:
                stream.write(own.tobytes())

    def _path(self, bucket: int) -> str:
        # Not pathlib, which interns every name and so keeps it in memory.
        return os.path.join(self._scratch, f"{bucket:06d}")

    def repeats(self) -> Iterator[tuple[Numbers, Numbers]]:
        """Yield batches of (number, smallest number with the same signature) for all repeats.

        The first row of each signature is not yielded. Call it once: it removes the files.
        """
        self._write()
        for bucket in range(self._buckets):
            path = self._path(bucket)
            if not os.path.exists(path):
                continue
            if self._is_divided:
                yield from self._divide(path).repeats()
                continue
            for numbers, firsts in _repeats_in(path):
                for start in range(0, len(numbers), COMPARED_ROWS):
                    batch = slice(start, start + COMPARED_ROWS)
                    yield numbers[batch], firsts[batch]
        shutil.rmtree(self._scratch)

    def _divide(self, bucket: str) -> "SignatureTable":
        """Move the rows of a bucket file to a table of its own."""
        rows = os.path.getsize(bucket) // SIGNED.itemsize
        table = SignatureTable(Path(f"{bucket}.divided"), rows, self._divisor * self._buckets)
        with open(bucket, "rb") as stream:
            while len(read := np.fromfile(stream, SIGNED, HELD_ROWS)):
                table._add(read)
        os.unlink(bucket)
        return table


def _repeats_in(bucket: str) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield the repeats of one bucket file.

    The file is read in parts, since one very frequent signature may make it large.
    """
    known = np.empty(0, SIGNED)  # the first row of each signature read so far
    with open(bucket, "rb") as stream:
        while len(read := np.fromfile(stream, SIGNED, HELD_ROWS)):
            rows = np.concatenate((known, read))
            rows = rows[np.lexsort((rows["high"], rows["low"]))]  # stable: keeps the first first
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
    """Flag repeated documents and paragraphs as the config asks.

    documents, paragraphs: one flag per document and paragraph of the corpus, set in place.
    scratch: a folder that is created, used and removed.
    Returns the number of dropped documents by reason.
    """
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
    """Set `dropped` [documents] in place where a document equals an earlier one.

    Returns the number of dropped documents.
    """
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
    """Set `dropped` [documents] in place where a document is similar to an earlier one.

    A document is dropped if its MinHash similarity with an earlier one is at least `threshold`.
    Documents that share a band are compared only with the first document that has this band, so
    the work grows linearly with the corpus. Returns the number of documents dropped here.
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
    for numbers, ours, theirs in _signed_pairs(table, segments, bounds, scratch):
        dropped[numbers[(ours == theirs).mean(axis=1) >= threshold]] = True
    return int(dropped.sum()) - before


def _signed_pairs(
    table: SignatureTable, segments: Sequence[CleanFile], bounds: Bounds, scratch: Path
) -> Iterator[tuple[Numbers, Signatures, Signatures]]:
    """Yield batches of documents with the signatures of both documents of a pair.

    The pairs of a table are in random order. They are distributed over files by the place of their
    first document, then, with its signature, by the place of the other. So each clean file is
    opened about twice, however many pairs there are.
    """
    by_first = PlacedRows(scratch.with_name("pairs"), bounds, PAIR)
    for numbers, firsts in table.repeats():
        rows = np.empty(len(numbers), PAIR)
        rows["number"], rows["first"] = numbers, firsts
        by_first.add(rows, firsts)
    by_number = PlacedRows(scratch.with_name("signed"), bounds, SIGNED_PAIR)
    for pairs in by_first.take():
        pairs = np.unique(pairs)  # a pair may share several bands
        pairs = pairs[np.argsort(pairs["first"], kind="stable")]
        for some in _batches(pairs):
            rows = np.empty(len(some), SIGNED_PAIR)
            rows["number"] = some["number"]
            rows["signature"] = gather_signatures(segments, bounds, some["first"])
            by_number.add(rows, some["number"])
    for signed in by_number.take():
        for some in _batches(signed[np.argsort(signed["number"], kind="stable")]):
            ours = gather_signatures(segments, bounds, some["number"])
            yield some["number"], ours, some["signature"]


def _batches(rows: Table) -> Iterator[Table]:
    for start in range(0, len(rows), COMPARED_ROWS):
        yield rows[start : start + COMPARED_ROWS]


class PlacedRows:
    """Rows in at most MOST_BUCKETS files, by the place of a document in the corpus.

    Creates the folder `scratch`; `take` removes it.
    """

    def __init__(self, scratch: Path, bounds: Bounds, dtype: np.dtype[np.void]):
        scratch.mkdir()
        self._scratch, self._dtype = scratch, dtype
        files = len(bounds.documents) - 1
        self._starts = np.array(bounds.documents[: files or 1 : -(-files // MOST_BUCKETS) or 1])

    def add(self, rows: Table, documents: Numbers) -> None:
        """Append rows [N] by the numbers of documents [N]."""
        bucket = np.searchsorted(self._starts, documents, side="right") - 1
        order = np.argsort(bucket, kind="stable")
        numbers, starts = np.unique(bucket[order], return_index=True)
        for number, own in zip(numbers.tolist(), np.split(rows[order], starts[1:]), strict=True):
            with open(os.path.join(self._scratch, f"{number:06d}"), "ab") as stream:
                stream.write(own.tobytes())

    def take(self) -> Iterator[Table]:
        """Yield the rows of each file, in corpus order of the files."""
        for name in sorted(os.listdir(self._scratch)):
            yield np.fromfile(os.path.join(self._scratch, name), self._dtype)
        shutil.rmtree(self._scratch)


def gather_signatures(
    segments: Sequence[CleanFile], bounds: Bounds, documents: Numbers
) -> NDArray[np.uint32]:
    """Return the MinHash signatures [N, SIGNATURE_VALUES] of N documents of the corpus."""
    gathered = np.empty((len(documents), SIGNATURE_VALUES), np.uint32)
    homes = np.searchsorted(bounds.documents, documents, side="right") - 1
    for home in np.unique(homes).tolist():
        chosen = np.flatnonzero(homes == home)
        gathered[chosen] = segments[home].signatures()[documents[chosen] - bounds.documents[home]]
    return gathered


def flag_equal_paragraphs(
    segments: Sequence[CleanFile], bounds: Bounds, documents: Flags, dropped: Flags, scratch: Path
) -> None:
    """Set `dropped` [paragraphs] in place where a paragraph equals an earlier one.

    Only paragraphs of surviving documents (`documents` not set) are compared.
    """
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
        if own.any():  # a paragraph split over sections is dropped as a whole
            begins = np.flatnonzero(segment.paragraphs()["begins"])
            own[:] = np.repeat(own[begins], np.diff(begins, append=len(own)))


def paragraphs_of(segment: CleanFile, documents: Flags) -> Flags:
    """Repeat the flags of a clean file's documents once per paragraph row."""
    table = segment.sections()
    return np.repeat(documents[documents_of(table)], table["paragraphs"])
