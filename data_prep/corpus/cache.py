"""A cache of cleaned work units, so that a corpus that has grown cleans only its new parts.

The key of a work unit is a hash of its inputs: names and checksums of its files, the byte ranges
it reads, the cleaning settings, and the version of the clean format. The size of the cache is
bounded; the least recently used work units are removed first.
"""

import contextlib
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from data_prep.config import LIST_FILES, CorpusConfig
from data_prep.fields import result_keys
from data_prep.files import sync_directory
from data_prep.reading.source_files import Part

# Result keys that only later passes read: cleaned work units stay valid when these change.
AFTER_CLEANING = ("weights", "temperature", "deduplicate", "shard_size")
CLEAN_VERSION = 5  # of cleaning, clean files and tally.json; raise it when they change
# Names of files that every work unit reads, or of folders of them; see pipeline.stages.shard.
LISTS = tuple(f"corpus.{key}" for key in (*LIST_FILES, "decontaminate", "hook"))


@dataclass(frozen=True)
class PieceCache:
    """Cleaned work units below `root`, one folder per key."""

    root: Path
    checksums: Mapping[str, str]  # of all input files, by name
    version: int
    most_bytes: int

    def key(self, parts: Sequence[Part], config: CorpusConfig) -> str:
        """Return the key of the work unit that cleans these parts."""
        read = {file.name for part in parts for file in part.file.with_pages()}
        described = {
            "version": [self.version, CLEAN_VERSION],
            "config": {k: v for k, v in result_keys(config).items() if k not in AFTER_CLEANING},
            "files": {name: self.checksums[name] for name in sorted(read)},
            "lists": {name: sum_ for name, sum_ in self.checksums.items() if is_list(name)},
            "parts": [[part.file.name, part.file.source, part.start, part.end] for part in parts],
        }
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:32]

    def has(self, key: str) -> bool:
        """Return True if the cache has this work unit."""
        return (self.root / key).is_dir()

    def take(self, key: str, folder: Path) -> bool:
        """Link or copy a work unit's files into `folder`; return False if it is not in the cache.

        After False, `folder` is empty.
        """
        try:
            for path in sorted((self.root / key).iterdir()):
                _link_or_copy(path, folder / path.name)
            os.utime(self.root / key)
        except FileNotFoundError:  # absent, or another process is trimming it right now
            for path in folder.iterdir():
                path.unlink()
            return False
        return True

    def keep(self, key: str, folder: Path) -> None:
        """Move a finished work unit's folder into the cache, or remove it if it is there.

        Another process may keep the same unit at the same time.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
        try:
            os.rename(folder, self.root / key)
        except OSError:
            if not self.has(key):
                raise
            shutil.rmtree(folder)

    def trim(self) -> None:
        """Remove the least recently used work units until the rest fits into `most_bytes`."""
        entries = sorted(self._entries(), reverse=True)
        filled = 0
        for _, path, size in entries:
            filled += size
            if filled > self.most_bytes:
                # Rename before removing, so that no half-removed folder has a valid key.
                doomed = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.removed")
                with contextlib.suppress(FileNotFoundError):  # another process removed it
                    os.rename(path, doomed)
                    shutil.rmtree(doomed, ignore_errors=True)
        if self.root.is_dir():
            for leftover in self.root.glob(".*.removed"):
                shutil.rmtree(leftover, ignore_errors=True)
            sync_directory(self.root)

    def _entries(self) -> Iterator[tuple[int, Path, int]]:
        for path in self.root.glob("[0-9a-f]*"):
            with contextlib.suppress(FileNotFoundError):  # another process removed it
                size = sum(file.stat().st_size for file in path.iterdir())
                yield path.stat().st_mtime_ns, path, size


def is_list(name: str) -> bool:
    """Return True for the name of a file that is no part of the corpus but read by every unit."""
    return name.partition("/")[0] in LISTS


def _link_or_copy(path: Path, target: Path) -> None:
    """Hard-link a file, or copy it where the file system has no hard links."""
    try:
        os.link(path, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(path, target)
