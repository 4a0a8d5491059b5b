"""Which documents and paragraphs repeat earlier ones, over the whole corpus in bounded memory.

Reads the tables of all segments, one at a time, never their text. Signatures go to a table on disk
in which DuckDB, told how much memory it may take, finds those that occur again; the first in corpus
order survives. Copies of what is held out are gone from training by the same rule, since documents
and paragraphs are compared before anything is held out.
"""

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data_prep.config import CorpusConfig
from data_prep.minhash import SIGNATURE_VALUES, band_hashes, rows_per_band
from data_prep.segments import Bounds, Segment, documents_of

ENGINE: dict[str, str | bool | int | float | list[str]] = {
    "memory_limit": "400MB", "threads": 2, "preserve_insertion_order": False,
}  # fmt: skip
BATCH_ROWS = 1 << 15  # pairs of signatures compared at once: 1 KB each
Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]


class SignatureTable:
    """Signatures of 128 bits with the numbers of what they belong to, in a file below `scratch`."""

    def __init__(self, scratch: Path):
        import duckdb

        scratch.mkdir()
        spilled = {"temp_directory": str(scratch / "spilled")}
        self._engine = duckdb.connect(str(scratch / "signatures.duckdb"), config=ENGINE | spilled)
        self._engine.execute("CREATE TABLE signed (low UBIGINT, high UBIGINT, number BIGINT)")

    def add(self, low: NDArray[np.uint64], high: NDArray[np.uint64], numbers: Numbers) -> None:
        """Append rows."""
        import pyarrow

        rows = pyarrow.table({"low": low, "high": high, "number": numbers})
        self._engine.register("added", rows)
        self._engine.execute("INSERT INTO signed SELECT low, high, number FROM added")
        self._engine.unregister("added")

    def repeats(self) -> Iterator[tuple[Numbers, Numbers]]:
        """Batches of (number, smallest number with the same signature), where they differ."""
        self._engine.execute(
            "CREATE TABLE repeated AS SELECT low, high, min(number) AS first "
            "FROM signed GROUP BY low, high HAVING count(*) > 1"
        )
        found = self._engine.sql(
            "SELECT number, first FROM signed JOIN repeated USING (low, high) "
            "WHERE number > first ORDER BY number, first"
        )
        for batch in found.to_arrow_reader(BATCH_ROWS):
            yield batch.column(0).to_numpy(), batch.column(1).to_numpy()
        self._engine.close()


def flag_repeats(
    segments: Sequence[Segment],
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
    segments: Sequence[Segment], bounds: Bounds, dropped: Flags, scratch: Path
) -> int:
    """Drop every document that equals an earlier one; returns how many."""
    table = SignatureTable(scratch)
    for segment, first in zip(segments, bounds.documents, strict=False):
        rows = segment.sections()
        rows = rows[rows["section"] == 0]
        table.add(rows["low"], rows["high"], first + np.arange(len(rows)))
    for numbers, _ in table.repeats():
        dropped[numbers] = True
    return int(dropped.sum())


def flag_near_documents(
    segments: Sequence[Segment], bounds: Bounds, dropped: Flags, threshold: float, scratch: Path
) -> int:
    """Drop every document that is near an earlier one; returns how many.

    Documents that share a band are compared with the first of those that have it, so the work
    grows with the corpus and not with its square, however often one text is repeated.
    """
    table = SignatureTable(scratch)
    rows = rows_per_band(threshold)
    for number, segment in enumerate(segments):
        _, of_document, _ = bounds.slices(number)
        survives = np.flatnonzero(~dropped[of_document])
        signatures = segment.signatures()[survives]
        for band, hashes in enumerate(band_hashes(signatures, rows)):
            table.add(hashes, np.full_like(hashes, band), of_document.start + survives)
    before = int(dropped.sum())
    for numbers, firsts in table.repeats():
        ours = gather_signatures(segments, bounds, numbers)
        theirs = gather_signatures(segments, bounds, firsts)
        dropped[numbers[(ours == theirs).mean(axis=1) >= threshold]] = True
    return int(dropped.sum()) - before


def gather_signatures(
    segments: Sequence[Segment], bounds: Bounds, documents: Numbers
) -> NDArray[np.uint32]:
    """The signatures of documents anywhere in the corpus."""
    gathered = np.empty((len(documents), SIGNATURE_VALUES), np.uint32)
    homes = np.searchsorted(bounds.documents, documents, side="right") - 1
    for home in np.unique(homes).tolist():
        chosen = np.flatnonzero(homes == home)
        gathered[chosen] = segments[home].signatures()[documents[chosen] - bounds.documents[home]]
    return gathered


def flag_equal_paragraphs(
    segments: Sequence[Segment], bounds: Bounds, documents: Flags, dropped: Flags, scratch: Path
) -> None:
    """Drop every paragraph of the surviving documents that equals an earlier one of theirs."""
    table = SignatureTable(scratch)
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


def paragraphs_of(segment: Segment, documents: Flags) -> Flags:
    """The flags of a segment's documents, one for each of their paragraphs."""
    table = segment.sections()
    return np.repeat(documents[documents_of(table)], table["paragraphs"])
