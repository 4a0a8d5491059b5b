"""The placement of sections: which survive, their document numbers, and which are held out.

The place pass has one work unit per group of clean files. It writes
    sections        the SECTION rows of its files, with the sizes that dropped paragraphs leave
    documents.npy   one flag per document, True if it is dropped
    paragraphs.npy  one flag per paragraph
    counts.json     the rows of each file, what was dropped, and what is left by source and language
    dropped.json    a sample of the near-duplicates
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_prep.arrays import save_array
from data_prep.corpus.clean_files import SECTION, Flags, KeptParagraphs, Table, documents_of
from data_prep.corpus.dropped import UNIT_FILE, Dropped
from data_prep.corpus.matching import Group
from data_prep.corpus.repeats import Repeats, paragraphs_of, split_flags
from data_prep.hashing import splitmix64

STRATA = ("source", "language")  # columns of SECTION; "source 3" counts documents of source 3
HELDOUT_SHARE, HELDOUT_LEAST, HELDOUT_MOST = 0.005, 50, 0.1


@dataclass(frozen=True)
class Home:
    """The rows of one clean file in the tables of its group."""

    folder: Path  # of the place pass
    sections: slice
    documents: slice
    paragraphs: slice
    first_number: int  # number of its first surviving document in the corpus

    def read_sections(self) -> Table:
        """Read the SECTION rows of the file."""
        # Read instead of memory-mapped: mapped pages would stay resident and grow with the corpus.
        return np.fromfile(
            self.folder / "sections",
            SECTION,
            self.sections.stop - self.sections.start,
            offset=self.sections.start * SECTION.itemsize,
        )

    def dropped_paragraphs(self) -> Flags:
        """Read the flags of the file's paragraphs."""
        flags: Flags = np.load(self.folder / "paragraphs.npy", mmap_mode="r")[self.paragraphs]
        return flags


@dataclass(frozen=True)
class Placement:
    """Decides which split and document number each section of the corpus gets."""

    homes: list[Home]  # one per clean file
    sections: int  # of all clean files
    heldout_limit: int  # sections with a smaller hash are held out


@dataclass(frozen=True)
class Placed:
    """The placement of one clean file's S sections."""

    table: Table  # [S] SECTION rows
    kept: NDArray[np.bool_]  # [S]
    numbers: NDArray[np.int64]  # [S] document number in corpus order
    heldout: NDArray[np.bool_]  # [S]


def place_group(group: Group, folder: Path, repeats: Repeats, sources: Sequence[str]) -> None:
    """Make one unit of the place pass.

    A document that lost all its paragraphs is dropped too.
    sources: the names of the sources, for the counts of dropped documents.
    """
    sample = Dropped()
    counts: Counter[str] = Counter()
    rows: list[list[int]] = []
    documents, paragraphs = [np.zeros(0, np.bool_)], [np.zeros(0, np.bool_)]
    every = sum(_paragraph_rows(group))
    gone_of_group = group.flags(every, repeats.paragraphs)
    equal = split_flags(group, repeats.equal)
    first = 0
    with open(folder / "sections", "wb") as stream:
        for own, exact in zip(split_flags(group, repeats.documents), equal, strict=True):
            table, found = own.table, own.file.paragraphs()
            gone, lost = gone_of_group[first : first + len(found)], own.flags.copy()
            first += len(found)
            if gone.any():  # a paragraph split over sections is dropped as a whole
                begins = np.flatnonzero(found["begins"])
                gone = np.repeat(gone[begins], np.diff(begins, append=len(gone)))
            near = lost & ~exact.flags
            sample.add_stored("near_duplicate", own.file, table, near)
            reasons = {"duplicate": exact.flags, "near_duplicate": near}
            counts["paragraphs"] += int(found["begins"].sum())
            counts["repeated_paragraphs"] += int((found["begins"] & gone).sum())
            counts["paragraphs_of_dropped"] += int(
                (found["begins"] & paragraphs_of(table, lost)).sum()
            )
            if gone.any():
                table = KeptParagraphs(table, found, gone).sections()
                empty = ~lost & (np.bincount(documents_of(table), table["sentences"]) == 0)
                reasons["duplicate_paragraphs"] = empty
                lost |= empty
            source_of = own.table["source"][own.table["section"] == 0]
            for reason, flags in reasons.items():
                counts[reason] += int(flags.sum())
                for source, number in enumerate(np.bincount(source_of[flags]).tolist()):
                    sample.count(sources[source], Counter({reason: number}))
            stream.write(table.tobytes())
            kept = table[table["section"] == 0][~lost]
            for column in STRATA:
                numbers, found_of = np.unique(kept[column], return_counts=True)
                counts.update(
                    {f"{column} {n}": k for n, k in zip(numbers, found_of.tolist(), strict=True)}
                )
            rows.append([len(table), len(lost), len(found), int((~lost).sum())])
            documents.append(lost)
            paragraphs.append(gone)
    save_array(folder / "documents.npy", np.concatenate(documents))
    save_array(folder / "paragraphs.npy", np.concatenate(paragraphs))
    (folder / UNIT_FILE).write_text(sample.as_json())
    (folder / "counts.json").write_text(json.dumps({"rows": rows, "counts": counts}))


def _paragraph_rows(group: Group) -> list[int]:
    return [int(file.sections()["paragraphs"].sum(dtype=np.int64)) for file in group.files]


def find_homes(folders: Sequence[Path]) -> tuple[list[Home], Counter[str]]:
    """Number the surviving documents; return the home of each clean file, and all counts.

    `folders` are those of the place pass.
    """
    homes: list[Home] = []
    counts: Counter[str] = Counter()
    number = 0
    for folder in folders:
        described: dict[str, Any] = json.loads((folder / "counts.json").read_text())
        counts.update(described["counts"])
        ends = [0, 0, 0]
        for sections, documents, paragraphs, survivors in described["rows"]:
            starts, sizes = ends, (sections, documents, paragraphs)
            ends = [start + size for start, size in zip(starts, sizes, strict=True)]
            of_sections, of_documents, of_paragraphs = map(slice, starts, ends)
            homes.append(Home(folder, of_sections, of_documents, of_paragraphs, number))
            number += survivors
    return homes, counts


def place_sections(home: Home, heldout_limit: int) -> Placed:
    """Return the placement of the sections of one clean file."""
    table = home.read_sections()
    survives = ~np.load(home.folder / "documents.npy", mmap_mode="r")[home.documents]
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
    for home in placement.homes:
        yield place_sections(home, placement.heldout_limit)


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
    most, sections = max(heldout_sections(placement.sections), 1), 0
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
