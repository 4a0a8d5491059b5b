"""Assign sections to shard files, in corpus order, and count them by split."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_prep.corpus.clean_files import Table
from data_prep.corpus.placement import Placement, place_all
from data_prep.corpus.shard_format import BLOCK

# The most that the numbers and the weight of a section add to the JSON of its origin.
NUMBERS_BYTES = len('"document": 0123456789, "section": 01234, "weight": 1234.123456, ')


@dataclass
class Shard:
    """A shard file: spans of section rows as (clean file, first row, past the last row).

    The shard takes only the rows of its own split from these spans.
    """

    name: str
    heldout: bool
    spans: list[tuple[int, int, int]]


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
        sizes = _padded(table["text_bytes"]) + _padded(table["origin_bytes"] + NUMBERS_BYTES)
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
