"""Cleaned pieces kept from run to run, so that a grown corpus cleans only what is new.

A piece is known by what it was made from: its files' names and checksums, the ranges it takes of
them, the settings of cleaning, and the version of what cleaning writes. The cache is bounded: the
pieces that were not used for longest go first.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from data_prep.config import CorpusConfig
from data_prep.fields import result_keys
from data_prep.files import sync_directory
from data_prep.reading.sources import Part

# Result keys that only later passes read: changing them leaves cleaned pieces valid.
AFTER_CLEANING = ("weights", "temperature", "deduplicate", "shard_size")
TALLY_VERSION = 2  # of a piece's own counts, which shape no shard; raised when they change
LISTS = ("corpus.exclude_file", "corpus.abbreviations_file")  # read by every piece


@dataclass(frozen=True)
class PieceCache:
    """Pieces below `root`; `checksums` has those of all files read, by name."""

    root: Path
    checksums: Mapping[str, str]
    version: int
    most_bytes: int

    def key(self, parts: Sequence[Part], config: CorpusConfig) -> str:
        """The name of the piece that cleaning makes of these parts."""
        read = {part.file.name for part in parts}
        described = {
            "version": [self.version, TALLY_VERSION],
            "config": {k: v for k, v in result_keys(config).items() if k not in AFTER_CLEANING},
            "files": {name: self.checksums[name] for name in sorted(read)},
            "lists": [self.checksums.get(name) for name in LISTS],
            "parts": [[part.file.name, part.file.source, part.start, part.end] for part in parts],
        }
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:32]

    def has(self, key: str) -> bool:
        """Whether a piece is here."""
        return (self.root / key).is_dir()

    def take(self, key: str, folder: Path) -> bool:
        """Put a piece's files into `folder`, as links; says whether it was here as a whole."""
        try:
            for path in sorted((self.root / key).iterdir()):
                os.link(path, folder / path.name)
            os.utime(self.root / key)
        except FileNotFoundError:  # never there, or just making room for another
            for path in folder.iterdir():
                path.unlink()
            return False
        return True

    def keep(self, key: str, folder: Path) -> None:
        """Move a finished piece here."""
        self.root.mkdir(parents=True, exist_ok=True)
        if self.has(key):
            shutil.rmtree(folder)
        else:
            os.utime(folder)
            os.replace(folder, self.root / key)

    def trim(self) -> None:
        """Remove the pieces used longest ago until the rest fits."""
        entries = sorted(self._entries(), reverse=True)
        filled = 0
        for _, path, size in entries:
            filled += size
            if filled > self.most_bytes:
                doomed = path.with_name(f".{path.name}.removed")  # never half a piece by its name
                os.replace(path, doomed)
                shutil.rmtree(doomed)
        if self.root.is_dir():
            for leftover in self.root.glob(".*.removed"):
                shutil.rmtree(leftover, ignore_errors=True)
            sync_directory(self.root)

    def _entries(self) -> Iterator[tuple[int, Path, int]]:
        for path in self.root.glob("[0-9a-f]*"):
            size = sum(file.stat().st_size for file in path.iterdir())
            yield path.stat().st_mtime_ns, path, size
