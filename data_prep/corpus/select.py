"""The join pass, between cleaning and writing: every decision that needs the whole corpus.

It drops repeats, numbers the documents, chooses the held-out sections and assigns sections to
shard files. It reads the tables of all clean files, one file at a time, never their text.
It writes one work unit: `documents.npy` and `paragraphs.npy` (one flag each, True if dropped),
`sections` (the section table without dropped paragraphs) and `plan.json` (everything else).
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_prep.config import CorpusConfig
from data_prep.corpus.clean_text import SECTION, Bounds, CleanFile, Table, clean_files, documents_of
from data_prep.corpus.deduplicate import Flags, flag_repeats, paragraphs_of
from data_prep.corpus.diagnosis import refuse_wrong_keys
from data_prep.corpus.groups import SectionGroups, count_groups
from data_prep.corpus.mixture import source_weights
from data_prep.corpus.shard_format import BLOCK
from data_prep.files import reserve
from data_prep.reading.tally import Tally

NUMBERS_BYTES = len('{"document": 0123456789, "section": 01234, "weight": 1234.123456, ')
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


@dataclass(frozen=True)
class Placed:
    """The placement of one clean file's S sections."""

    table: Table  # [S] SECTION rows
    kept: NDArray[np.bool_]  # [S]
    numbers: NDArray[np.int64]  # [S] document number in corpus order
    heldout: NDArray[np.bool_]  # [S]


@dataclass
class Shard:
    """A shard file: spans of section rows as (clean file, first row, past the last row).

    The shard takes only the rows of its own split from these spans.
    """

    name: str
    heldout: bool
    spans: list[tuple[int, int, int]]


@dataclass(frozen=True)
class Plan:
    """The result of the join, as `load_plan` reads it."""

    placement: Placement
    shards: list[Shard]
    weights: list[float]  # per source: expected copies of a document in training
    tally: Tally
    counts: dict[str, Any]
    statistics: dict[str, Any]


def select_documents(_: None, folder: Path, config: CorpusConfig, pieces: list[Path]) -> None:
    """Make all decisions that need the whole corpus and write them to `folder`.

    Raises SesameError if strict and a document was damaged, if a named field is in no record, or
    if no document is left.
    """
    tally = Tally(strict=config.strict)
    for piece in pieces:
        tally.add(Tally.from_json(json.loads((piece / "tally.json").read_text())))
    tally.check_strict()
    refuse_wrong_keys(tally, config)
    segments = clean_files(pieces)
    bounds = Bounds.of(segments)
    documents = _new_flags(folder / "documents.npy", bounds.documents[-1])
    paragraphs = _new_flags(folder / "paragraphs.npy", bounds.paragraphs[-1])
    sections = folder / "sections"
    repeated = flag_repeats(segments, bounds, documents, paragraphs, config, folder / "compared")
    repeated["duplicate_paragraphs"], paragraph_counts = keep_the_rest(
        segments, bounds, documents, paragraphs, sections
    )
    tally.dropped.update(+repeated)  # unary plus drops the zero counts

    first_number = [0]
    for first, past in pairwise(bounds.documents):
        first_number.append(first_number[-1] + int((~documents[first:past]).sum()))
    placement = Placement(bounds, documents, paragraphs, sections, first_number, heldout_limit=0)
    placement = replace(placement, heldout_limit=choose_heldout(placement))
    names = sorted(config.sources)
    sizes = dict(zip(names, count_source_bytes(placement, len(names)), strict=True))
    weights = source_weights(sizes, config.weights, config.temperature)
    shards, counts, statistics = deal_sections(placement, config.shard_size)
    counts = {"documents": _document_counts(tally), "paragraphs": paragraph_counts, **counts}
    if config.group_field is not None:
        counts["groups"] = count_groups(partial(_section_groups, placement), config.group_field)
    if names:
        counts["sources"] = {
            name: {"bytes": sizes[name], "weight": weights[name]} for name in names
        }
    plan = {
        "bounds": asdict(bounds),
        "first_number": first_number,
        "heldout_limit": placement.heldout_limit,
        "shards": [asdict(shard) for shard in shards],
        "weights": [weights[name] for name in names] or [1.0],
        "tally": tally.as_json(),
        "counts": counts,
        "statistics": {**counts, **statistics, "damaged": tally.as_json()["notes"]},
    }
    for written in (documents, paragraphs):
        written.flush()
    (folder / "plan.json").write_text(json.dumps(plan))


def _new_flags(path: Path, size: int) -> np.memmap[Any, np.dtype[np.bool_]]:
    flags = np.lib.format.open_memmap(path, "w+", np.dtype(np.bool_), (size,))
    reserve(path)
    return flags


def load_plan(folder: Path, strict: bool = False) -> Plan:
    """Read what `select_documents` wrote; with `strict`, raise SesameError on recorded damage."""
    values = json.loads((folder / "plan.json").read_text())
    tally = Tally.from_json(values["tally"], strict)
    tally.check_strict()
    placement = Placement(
        Bounds(**values["bounds"]),
        np.load(folder / "documents.npy", mmap_mode="r"),
        np.load(folder / "paragraphs.npy", mmap_mode="r"),
        folder / "sections",
        values["first_number"],
        values["heldout_limit"],
    )
    shards = [Shard(**shard) for shard in values["shards"]]
    return Plan(placement, shards, values["weights"], tally, values["counts"], values["statistics"])


def keep_the_rest(
    segments: list[CleanFile],
    bounds: Bounds,
    documents: Flags,
    paragraphs: Flags,
    sections: Path,
) -> tuple[int, dict[str, Any]]:
    """Write the section rows without dropped paragraphs to `sections`.

    A document that lost all its paragraphs is dropped too: its flag in `documents` is set in
    place. Returns the number of such documents, and the paragraph counts.
    """
    read, emptied, dropped = 0, 0, Counter(duplicate=0, document=0)
    with open(sections, "wb") as stream:
        for number, segment in enumerate(segments):
            _, of_document, of_paragraph = bounds.slices(number)
            table, rows = segment.sections(), segment.paragraphs()
            gone, lost = paragraphs[of_paragraph], documents[of_document]
            read += int(rows["begins"].sum())
            dropped["duplicate"] += int((rows["begins"] & gone).sum())
            dropped["document"] += int((rows["begins"] & paragraphs_of(segment, lost)).sum())
            if gone.any():
                table = _without(table, rows, gone)
                empty = ~lost & (np.bincount(documents_of(table), table["sentences"]) == 0)
                emptied += int(empty.sum())
                lost |= empty
            stream.write(table.tobytes())
    kept = read - dropped.total()
    return emptied, {"read": read, "kept": kept, "dropped": dict(sorted((+dropped).items()))}


def _without(table: Table, rows: Table, gone: Flags) -> Table:
    """Return the section table with the sizes recomputed without the `gone` paragraphs."""
    left = table.copy()
    owner = np.repeat(np.arange(len(table)), table["paragraphs"])[~gone]
    for size in ("text_bytes", "sentences", "words"):
        left[size] = np.bincount(owner, rows[size][~gone], len(table))
    left["paragraphs"] = np.bincount(owner, minlength=len(table))
    # Paragraph sizes include "\n\n"; a section ends with a single "\n".
    left["text_bytes"] -= left["paragraphs"] > 0
    return left


def place_sections(placement: Placement, segment: int) -> Placed:
    """Return the placement of the sections of clean file number `segment`."""
    of_section, of_document, _ = placement.bounds.slices(segment)
    # Read instead of memory-mapped: mapped pages would stay resident and grow with the corpus.
    table = np.fromfile(
        placement.sections,
        SECTION,
        of_section.stop - of_section.start,
        offset=of_section.start * SECTION.itemsize,
    )
    survives = ~placement.dropped_documents[of_document]
    document = documents_of(table)
    numbers = placement.first_number[segment] + np.cumsum(survives) - 1
    return Placed(
        table=table,
        kept=survives[document] & (table["sentences"] > 0),
        numbers=numbers[document].astype(np.int64),
        heldout=section_hashes(table) < np.uint64(placement.heldout_limit),
    )


def place_all(placement: Placement) -> Iterator[Placed]:
    """Yield the placement of every clean file's sections, in corpus order."""
    for segment in range(len(placement.bounds.sections) - 1):
        yield place_sections(placement, segment)


def _section_groups(placement: Placement) -> Iterator[SectionGroups]:
    """Yield, per clean file, the kept sections' groups, first-of-document and held-out flags."""
    for placed in place_all(placement):
        numbers = placed.numbers[placed.kept]
        is_first = np.diff(numbers, prepend=-1) != 0
        yield placed.table["group"][placed.kept], is_first, placed.heldout[placed.kept]


def section_hashes(table: Table) -> NDArray[np.uint64]:
    """Return one hash per section [S], from its document's text hash and its section number.

    Mixed by the finaliser of SplitMix64. All sections of a group have the same hash, so they are
    held out together.
    """
    grouped = table["group"] != 0
    number = np.where(grouped, np.uint64(0), table["section"].astype(np.uint64))
    mixed = np.where(grouped, table["group"], table["high"])
    mixed = mixed + (number + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    result: NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(31))
    return result


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

    sections = sum(len(hashes) for hashes in kept_hashes())
    wanted = heldout_sections(sections)
    if wanted == 0:
        return 0
    smallest = np.zeros(0, np.uint64)
    for hashes in kept_hashes():
        smallest = np.concatenate((smallest, hashes))
        if len(smallest) > wanted:
            smallest = np.partition(smallest, wanted - 1)[:wanted]
    limit = int(smallest.max()) + 1
    # Sections with equal hashes (copies under deduplicate=none, groups) are held out together. If
    # that exceeds the 10 % maximum, the limit excludes the largest hash.
    below = sum(int((hashes < np.uint64(limit)).sum()) for hashes in kept_hashes())
    return limit if below <= max(wanted, HELDOUT_MOST * sections) else limit - 1


def count_source_bytes(placement: Placement, sources: int) -> list[int]:
    """Return the bytes of training text per source, in the order of source numbers."""
    sizes = np.zeros(sources, np.int64)
    for placed in place_all(placement) if sources else ():
        chosen = placed.table[placed.kept & ~placed.heldout]
        sizes += np.bincount(chosen["source"], chosen["text_bytes"], sources).astype(np.int64)
    return sizes.tolist()


def deal_sections(
    placement: Placement, shard_size: int
) -> tuple[list[Shard], dict[str, Any], dict[str, Any]]:
    """Assign sections to shard files in corpus order.

    Returns the shards, counts by split, and histograms of document lengths.
    """
    counted = ("sections", "sentences", "words", "bytes", "shards")
    counts: dict[str, dict[str, int]] = {what: {"train": 0, "heldout": 0} for what in counted}
    histograms = {"words": np.zeros(64, np.int64), "sentences": np.zeros(64, np.int64)}
    dealers = {split: Dealer(split, shard_size) for split in ("train", "heldout")}
    for number, placed in enumerate(place_all(placement)):
        table = placed.table
        for what, histogram in histograms.items():
            histogram += _histogram(placed.numbers[placed.kept], table[what][placed.kept])
        for split, dealer in dealers.items():
            rows = np.flatnonzero(placed.kept & (placed.heldout == (split == "heldout")))
            chosen = table[rows]
            counts["sections"][split] += len(rows)
            counts["bytes"][split] += int(chosen["text_bytes"].sum(dtype=np.int64))
            for what in ("sentences", "words"):
                counts[what][split] += int(chosen[what].sum(dtype=np.int64))
            dealer.deal(number, rows, chosen)
    for split, dealer in dealers.items():
        counts["shards"][split] = len(dealer.shards)
    statistics = {f"document_{what}": _as_json(histograms[what]) for what in histograms}
    return [*dealers["train"].shards, *dealers["heldout"].shards], counts, statistics


class Dealer:
    """Assigns the sections of one split to shard files, filling one shard after another."""

    def __init__(self, split: str, shard_size: int):
        self.shards: list[Shard] = []
        self._split = split
        self._most = shard_size - 2 * BLOCK
        self._filled = 0

    def deal(self, segment: int, rows: NDArray[np.intp], table: Table) -> None:
        """Assign these rows of a clean file to the current shard, then to new ones as they fill.

        `table` holds the same rows; only their sizes are read.
        """
        sizes = _padded(table["text_bytes"]) + _padded(table["tail_bytes"] + NUMBERS_BYTES)
        ends = np.concatenate(([0], np.cumsum(sizes)))
        begin = 0
        while begin < len(rows):
            room = self._most - self._filled
            end = int(np.searchsorted(ends, ends[begin] + room, side="right")) - 1
            if not self.shards or (end == begin and self._filled):
                name = f"{self._split}-{len(self.shards):05d}"
                self.shards.append(Shard(name, self._split == "heldout", []))
                self._filled = 0
                continue
            end = max(end, begin + 1)  # a section larger than a shard gets a shard of its own
            span = segment, int(rows[begin]), int(rows[end - 1]) + 1
            self.shards[-1].spans.append(span)
            self._filled += int(ends[end] - ends[begin])
            begin = end


def _padded(sizes: NDArray[np.uint32]) -> NDArray[np.int64]:
    padded: NDArray[np.int64] = BLOCK + -(-sizes.astype(np.int64) // BLOCK) * BLOCK
    return padded


def _histogram(documents: NDArray[np.int64], amounts: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Count documents by the power of two of their total amount: bin i is [2^i, 2^(i+1)).

    `documents` is the document of each row; the rows of a document are added up.
    """
    if not len(documents):
        return np.zeros(64, np.int64)
    totals = np.bincount(documents - documents[0], weights=amounts)
    return np.bincount(np.log2(np.maximum(totals, 1)).astype(np.int64), minlength=64)


def _as_json(histogram: NDArray[np.int64]) -> dict[str, list[int]]:
    used = int(np.flatnonzero(histogram).max(initial=0)) + 1
    return {"from": [2**i for i in range(used)], "documents": histogram[:used].tolist()}


def _document_counts(tally: Tally) -> dict[str, Any]:
    values = tally.as_json()
    return {
        "read": tally.read,
        "kept": tally.kept,
        "dropped": values["dropped"],
        "repaired": values["repaired"],
        "broken_files": tally.broken_files,
    }
