"""A sample of the documents that cleaning dropped, for `sesame inspect dropped`.

Per reason the sample keeps the SAMPLE texts with the smallest hashes, so it depends neither on
workers nor on how files are divided. It lies as `.dropped.json` beside the shards. It holds text,
so it stays there: it is no part of the manifest, and nothing but `inspect` reads it.
Documents that are dropped unread (corpus.where, corpus.exclude, damage) or as equal to others are
counted only.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.config import CorpusConfig
from data_prep.corpus.clean_files import CleanFile, Flags, KeptParagraphs, Table, text_digest

SAMPLE = 20  # documents per reason
LONGEST = 2000  # characters of a document
UNIT_FILE = "dropped.json"  # in a work unit of the clean or place pass
OUTPUT_FILE = ".dropped.json"  # beside the shards; hidden files are no part of an output


@dataclass(frozen=True)
class DroppedDocument:
    """The beginning of a dropped document, and where it came from."""

    file: str
    id: str
    characters: int  # of the whole text
    text: str  # clean and redacted


@dataclass
class Dropped:
    """Counts of dropped documents by source and reason, and a sample by reason and hash."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    sample: dict[str, dict[str, DroppedDocument]] = field(default_factory=dict)

    def add(self, reason: str, file: str, id: str, text: str) -> None:
        """Consider a dropped text for the sample."""
        digest = text_digest(text.encode()).hex()
        self._keep(reason, {digest: DroppedDocument(file, id, len(text), text[:LONGEST])})

    def add_stored(self, reason: str, file: CleanFile, table: Table, chosen: Flags) -> None:
        """Consider documents of a clean file for the sample.

        table, chosen: its SECTION rows, and one flag per document.
        """
        if not chosen.any():
            return
        ends = np.append(np.flatnonzero(table["section"] == 0), len(table))
        hashes = {table[row][["low", "high"]].tobytes().hex(): row for row in ends[:-1][chosen]}
        every = KeptParagraphs(table, file.paragraphs(), np.zeros(len(file.paragraphs()), np.bool_))
        with open(file.text, "rb") as stream:
            for digest in sorted(hashes)[:SAMPLE]:
                first = int(hashes[digest])
                last = int(ends[np.searchsorted(ends, first, side="right")])
                read = [every.read(stream, row) for row in range(first, last)]
                text = b"".join(section for section, _ in read).decode()
                origin = json.loads(read[0][1])
                place = origin["source"], origin["id"]
                self._keep(reason, {digest: DroppedDocument(*place, len(text), text[:LONGEST])})

    def count(self, source: str, reasons: Counter[str]) -> None:
        """Add the counts of one source."""
        self.counts.setdefault(source, Counter()).update(+reasons)  # unary plus drops zeros

    def update(self, other: "Dropped") -> None:
        """Add the counts and the sample of the next work unit, in corpus order."""
        for source, reasons in other.counts.items():
            self.count(source, reasons)
        for reason, documents in other.sample.items():
            self._keep(reason, documents)

    def _keep(self, reason: str, documents: dict[str, DroppedDocument]) -> None:
        """Keep the smallest hashes; of equal texts, the first."""
        known = self.sample.setdefault(reason, {})
        for digest, document in documents.items():
            known.setdefault(digest, document)
        for digest in sorted(known)[SAMPLE:]:
            del known[digest]

    def as_json(self) -> str:
        """Return sorted, reproducible JSON."""
        values = {
            "counts": {source: {**reasons} for source, reasons in self.counts.items()},
            "sample": {
                reason: {digest: asdict(document) for digest, document in documents.items()}
                for reason, documents in self.sample.items()
            },
        }
        return json.dumps(values, indent=1, sort_keys=True, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Dropped":
        """Build it from the text of `as_json`."""
        values: dict[str, Any] = json.loads(text)
        return cls(
            {source: Counter(reasons) for source, reasons in values["counts"].items()},
            {
                reason: {digest: DroppedDocument(**one) for digest, one in documents.items()}
                for reason, documents in values["sample"].items()
            },
        )


def source_names(config: CorpusConfig) -> list[str]:
    """Return the names of the sources by their numbers; `corpus` if they have none."""
    return sorted(config.sources) or ["corpus"]


def join_dropped(units: Iterable[Path], folder: Path) -> None:
    """Join the samples of work units into one file below `folder`."""
    whole = Dropped()
    for unit in units:
        file = unit / UNIT_FILE
        if file.exists():  # a unit that an earlier version cached has none
            whole.update(Dropped.from_json(file.read_text()))
    (folder / OUTPUT_FILE).write_text(whole.as_json())


def move_dropped(folder: Path, out: Path) -> None:
    """Move the joined sample beside the shards, unless a killed launch has done so."""
    if (folder / OUTPUT_FILE).exists():
        os.replace(folder / OUTPUT_FILE, out / OUTPUT_FILE)
