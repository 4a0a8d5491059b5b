"""The placement of sections: which survive, their document numbers, and which are held out.

Reads the flags and the section table that the `select` pass writes, one clean file at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data_prep.corpus.clean_files import SECTION, Bounds, Flags, Table, documents_of
from data_prep.hashing import splitmix64

HELDOUT_SHARE, HELDOUT_LEAST, HELDOUT_MOST = 0.005, 50, 0.1


@dataclass(frozen=True)
class Placement:
    """Decides which split and document number each section gets: D documents, P paragraphs."""

    bounds: Bounds
    dropped_documents: Flags  # [D]
    dropped_paragraphs: Flags  # [P]
    sections: Path  # the section rows of all clean files, sizes without dropped paragraphs
    first_number: list[int]  # per clean file: number of its first surviving document
    heldout_limit: int  # sections with a smaller hash are held out

    def home(self, segment: int) -> "Home":
        """Return where the rows of clean file number `segment` are."""
        return Home(*self.bounds.slices(segment), self.first_number[segment])


@dataclass(frozen=True)
class Home:
    """The rows of one clean file in the tables of the whole corpus."""

    sections: slice
    documents: slice
    paragraphs: slice
    first_number: int  # number of its first surviving document


@dataclass(frozen=True)
class Placed:
    """The placement of one clean file's S sections."""

    table: Table  # [S] SECTION rows
    kept: NDArray[np.bool_]  # [S]
    numbers: NDArray[np.int64]  # [S] document number in corpus order
    heldout: NDArray[np.bool_]  # [S]


def place_sections(
    home: Home, sections: Path, dropped_documents: Flags, heldout_limit: int
) -> Placed:
    """Return the placement of the sections of one clean file.

    The other arguments are those of a `Placement`.
    """
    # Read instead of memory-mapped: mapped pages would stay resident and grow with the corpus.
    table = np.fromfile(
        sections,
        SECTION,
        home.sections.stop - home.sections.start,
        offset=home.sections.start * SECTION.itemsize,
    )
    survives = ~dropped_documents[home.documents]
    document = documents_of(table)
    numbers = home.first_number + np.cumsum(survives) - 1
    return Placed(
        table=table,
        kept=survives[document] & (table["sentences"] > 0),
        numbers=numbers[document].astype(np.int64),
        heldout=section_hashes(table) < np.uint64(heldout_limit),
    )


def place_all(placement: Placement) -> Iterator[Placed]:
    """Yield the placement of every clean file's sections, in corpus order."""
    for segment in range(len(placement.bounds.sections) - 1):
        yield place_sections(
            placement.home(segment),
            placement.sections,
            placement.dropped_documents,
            placement.heldout_limit,
        )


def section_hashes(table: Table) -> NDArray[np.uint64]:
    """Return one hash per section [S], from its document's text hash and its section number.

    All sections of a group have the same hash, so they are held out together.
    """
    grouped = table["group"] != 0
    number = np.where(grouped, np.uint64(0), table["section"].astype(np.uint64))
    hashes: NDArray[np.uint64] = splitmix64(
        np.where(grouped, table["group"], table["high"]), number
    )
    return hashes


def heldout_sections(sections: int) -> int:
    """Return the number of sections to hold out: 0.5 %, at least 50, at most 10 %.

    At least one if there are two or more sections, else none.
    """
    wanted = min(max(HELDOUT_LEAST, round(HELDOUT_SHARE * sections)), int(HELDOUT_MOST * sections))
    return max(wanted, 1) if sections > 1 else 0


def choose_heldout(placement: Placement) -> int:
    """Return the hash limit: sections with a smaller hash are held out."""

    def kept_hashes() -> Iterator[NDArray[np.uint64]]:
        for placed in place_all(placement):
            yield section_hashes(placed.table)[placed.kept]

    # One pass counts the sections and keeps as many small hashes as could be wanted of all of them.
    most, sections = max(heldout_sections(placement.bounds.sections[-1]), 1), 0
    smallest = np.zeros(0, np.uint64)
    for hashes in kept_hashes():
        sections += len(hashes)
        smallest = np.concatenate((smallest, hashes))
        if len(smallest) > 2 * most:  # each hash is moved a constant number of times
            smallest = np.partition(smallest, most - 1)[:most]
    wanted = heldout_sections(sections)
    if wanted == 0:
        return 0
    limit = int(np.partition(smallest, wanted - 1)[wanted - 1]) + 1
    # Sections with equal hashes (copies under deduplicate=none, groups) are held out together. If
    # that exceeds the 10 % maximum, the limit excludes the largest hash.
    below = sum(int((hashes < np.uint64(limit)).sum()) for hashes in kept_hashes())
    return limit if below <= max(wanted, HELDOUT_MOST * sections) else limit - 1
