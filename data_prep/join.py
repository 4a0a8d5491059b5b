"""The join between cleaning and writing: which documents survive, their numbers, splits and shards.

Reads the tables of all clean pieces, one segment at a time, never their text. Writes, as a piece of
its own, `duplicate.npy` (a flag a document) and `plan.json` (everything else).
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_prep.config import CorpusConfig
from data_prep.errors import SesameError
from data_prep.shards import BLOCK
from data_prep.tally import Tally

# One row a section: the 128-bit hash of its document's clean text, its place there, sizes.
SECTION = np.dtype(
    [
        ("low", "<u8"),
        ("high", "<u8"),
        ("section", "<u4"),
        ("text_bytes", "<u4"),
        ("tail_bytes", "<u4"),
        ("sentences", "<u4"),
        ("words", "<u4"),
    ]
)
NUMBERS_BYTES = len('{"document": 0123456789, "section": 01234, ')  # at most, before the tail
BUCKET_DOCUMENTS = 1 << 22  # documents compared at once: 24 bytes each, and as much to sort them
HELDOUT_SHARE, HELDOUT_LEAST, HELDOUT_MOST = 0.005, 50, 0.1

Table = NDArray[np.void]


@dataclass(frozen=True)
class Segment:
    """Some 16 MB of clean sections and their table."""

    text: Path

    def table(self) -> Table:
        """The rows of its sections in order."""
        return np.fromfile(self.text.with_suffix(".table"), SECTION)


@dataclass(frozen=True)
class Placement:
    """What decides where a section goes, by segment and document."""

    duplicate: NDArray[np.bool_]
    first_document: list[int]  # of each segment, counting all clean documents
    first_number: list[int]  # of each segment, counting those that survive
    heldout_limit: int  # sections with a smaller hash are held out


@dataclass(frozen=True)
class Placed:
    """Where the sections of one segment go."""

    kept: NDArray[np.bool_]
    numbers: NDArray[np.int64]
    heldout: NDArray[np.bool_]


@dataclass
class Shard:
    """A shard file: runs of rows (segment, first, past the last) of which it takes its split's."""

    name: str
    heldout: bool
    spans: list[tuple[int, int, int]]


@dataclass(frozen=True)
class Plan:
    """The result of the join."""

    placement: Placement
    shards: list[Shard]
    tally: Tally
    counts: dict[str, Any]
    statistics: dict[str, Any]


def segments_of(pieces: Sequence[Path]) -> list[Segment]:
    """The segments of all clean pieces in corpus order."""
    return [Segment(path) for piece in pieces for path in sorted(piece.glob("*.text"))]


def join_pieces(_: None, folder: Path, config: CorpusConfig, pieces: list[Path]) -> None:
    """Decide everything that needs the whole corpus, and write it down in `folder`."""
    tally = Tally(strict=config.strict)
    for piece in pieces:
        tally.add(Tally.from_json(json.loads((piece / "tally.json").read_text())))
    tally.check_strict()
    segments = segments_of(pieces)
    first_document = [0]
    for segment in segments:
        first_document.append(first_document[-1] + int((segment.table()["section"] == 0).sum()))

    if tally.kept == 0:
        raise SesameError(_nothing_left(tally))
    duplicate = np.lib.format.open_memmap(
        folder / "duplicate.npy", "w+", np.dtype(np.bool_), (first_document[-1],)
    )
    if config.deduplicate:
        flag_duplicates(segments, first_document, duplicate)
        repeated = int(duplicate.sum())
        if repeated:
            tally.dropped["duplicate"] += repeated

    first_number = [0]
    for first, past in pairwise(first_document):
        first_number.append(first_number[-1] + int((~duplicate[first:past]).sum()))
    placement = Placement(duplicate, first_document, first_number, heldout_limit=0)
    placement = replace(placement, heldout_limit=choose_heldout(segments, placement))
    shards, counts, statistics = deal_sections(segments, placement, config.shard_size)
    counts = {"documents": _document_counts(tally), **counts}
    plan = {
        "first_document": first_document,
        "first_number": first_number,
        "heldout_limit": placement.heldout_limit,
        "shards": [asdict(shard) for shard in shards],
        "tally": tally.as_json(),
        "counts": counts,
        "statistics": {**counts, **statistics, "damaged": tally.as_json()["notes"]},
    }
    duplicate.flush()
    (folder / "plan.json").write_text(json.dumps(plan))


def load_plan(folder: Path, strict: bool = False) -> Plan:
    """Read back what `join_pieces` wrote; with `strict`, damage found earlier stops here."""
    values = json.loads((folder / "plan.json").read_text())
    tally = Tally.from_json(values["tally"], strict)
    tally.check_strict()
    placement = Placement(
        np.load(folder / "duplicate.npy", mmap_mode="r"),
        values["first_document"],
        values["first_number"],
        values["heldout_limit"],
    )
    shards = [Shard(**shard) for shard in values["shards"]]
    return Plan(placement, shards, tally, values["counts"], values["statistics"])


def flag_duplicates(
    segments: list[Segment], first_document: list[int], duplicate: NDArray[np.bool_]
) -> None:
    """Set the flag of every document whose hash an earlier one has.

    Buckets of hashes are compared one after another, each gathered from all segments.
    """
    buckets = -(-first_document[-1] // BUCKET_DOCUMENTS)
    for bucket in range(buckets):
        gathered = []
        for segment, first in zip(segments, first_document, strict=False):
            table = segment.table()
            table = table[table["section"] == 0]
            chosen = np.flatnonzero(table["low"] % np.uint64(buckets) == bucket)
            gathered.append((table["low"][chosen], table["high"][chosen], chosen + first))
        low, high, number = (np.concatenate(column) for column in zip(*gathered, strict=True))
        order = np.lexsort((number, high, low))
        low, high, number = low[order], high[order], number[order]
        repeats = (low[1:] == low[:-1]) & (high[1:] == high[:-1])
        duplicate[number[1:][repeats]] = True


def place_sections(table: Table, placement: Placement, segment: int) -> Placed:
    """Where each section of a segment goes."""
    document = np.cumsum(table["section"] == 0) - 1
    first, past = placement.first_document[segment : segment + 2]
    survives = ~placement.duplicate[first:past]
    numbers = placement.first_number[segment] + np.cumsum(survives) - 1
    return Placed(
        kept=survives[document],
        numbers=numbers[document].astype(np.int64),
        heldout=section_hashes(table) < np.uint64(placement.heldout_limit),
    )


def section_hashes(table: Table) -> NDArray[np.uint64]:
    """A hash a section, from its document's text and its place; the finaliser of SplitMix64."""
    mixed = table["high"] + (table["section"].astype(np.uint64) + np.uint64(1)) * np.uint64(
        0x9E3779B97F4A7C15
    )
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    result: NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(31))
    return result


def heldout_sections(sections: int) -> int:
    """How many sections are held out: 0.5 %, at least 50, at most 10 %; one of two or more."""
    wanted = min(max(HELDOUT_LEAST, round(HELDOUT_SHARE * sections)), int(HELDOUT_MOST * sections))
    return max(wanted, 1) if sections > 1 else 0


def choose_heldout(segments: list[Segment], placement: Placement) -> int:
    """The limit below which a section's hash holds it out."""

    def kept_hashes() -> Iterator[NDArray[np.uint64]]:
        for number, segment in enumerate(segments):
            table = segment.table()
            yield section_hashes(table)[place_sections(table, placement, number).kept]

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
    # Copies of a document (deduplicate=false) go to one side together, unless they are too many.
    below = sum(int((hashes < np.uint64(limit)).sum()) for hashes in kept_hashes())
    return limit if below <= max(wanted, HELDOUT_MOST * sections) else limit - 1


def deal_sections(
    segments: list[Segment], placement: Placement, shard_size: int
) -> tuple[list[Shard], dict[str, Any], dict[str, Any]]:
    """Deal sections to shard files in order; also counts by split and histograms of documents."""
    counted = ("sections", "sentences", "words", "bytes", "shards")
    counts: dict[str, dict[str, int]] = {what: {"train": 0, "heldout": 0} for what in counted}
    histograms = {"words": np.zeros(64, np.int64), "sentences": np.zeros(64, np.int64)}
    dealers = {split: Dealer(split, shard_size) for split in ("train", "heldout")}
    for number, segment in enumerate(segments):
        table = segment.table()
        placed = place_sections(table, placement, number)
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
    """Fills the shard files of one split, one after another."""

    def __init__(self, split: str, shard_size: int):
        self.shards: list[Shard] = []
        self._split = split
        self._most = shard_size - 2 * BLOCK
        self._filled = 0

    def deal(self, segment: int, rows: NDArray[np.intp], table: Table) -> None:
        """Put these rows of a segment into the current shard and, when it is full, the next."""
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
            end = max(end, begin + 1)  # a section larger than a shard gets one to itself
            span = segment, int(rows[begin]), int(rows[end - 1]) + 1
            self.shards[-1].spans.append(span)
            self._filled += int(ends[end] - ends[begin])
            begin = end


def _padded(sizes: NDArray[np.uint32]) -> NDArray[np.int64]:
    padded: NDArray[np.int64] = BLOCK + -(-sizes.astype(np.int64) // BLOCK) * BLOCK
    return padded


def _histogram(documents: NDArray[np.int64], amounts: NDArray[np.uint32]) -> NDArray[np.int64]:
    """How many documents have an amount in [2^i, 2^(i+1)), summed over a document's rows."""
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


def _nothing_left(tally: Tally) -> str:
    if tally.read == 0:
        return "corpus.paths: the files hold no documents"
    reasons = ", ".join(f"{reason} took {count}" for reason, count in tally.dropped.most_common())
    return f"corpus: none of {tally.read} documents is left: {reasons}; loosen these filters"
