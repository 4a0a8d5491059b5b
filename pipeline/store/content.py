"""Checksums of the user's files. Fingerprints depend on a file's content, never on its path.

Files up to 64 MB are hashed completely, larger ones by sampled blocks. Checksums are cached in
`<store>/.cache/checksums.json` by path, size, inode and mtime, so that a rerun reads no file twice.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from data_prep.errors import SesameError, UsageError
from data_prep.files import read_json_object, sha256, write_atomically
from data_prep.progress import console
from data_prep.reading.source_files import FilePath

WHOLE_UP_TO = 64 << 20  # bytes
SAMPLED_BLOCKS, BLOCK = 64, 1 << 20
SAMPLED = "sampled"  # key of the manifest, and prefix of checksums, of large files
WHOLE = ":whole"  # suffix of the cache's key for the SHA-256 of a large file


def checksum(path: FilePath) -> str:
    """Return a file's SHA-256; for a large file `sampled-` and that of evenly spaced blocks."""
    size = path.stat().st_size
    if size <= WHOLE_UP_TO:
        return sha256(path)
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for block in range(SAMPLED_BLOCKS):
            stream.seek((size - BLOCK) * block // (SAMPLED_BLOCKS - 1))
            digest.update(stream.read(BLOCK))
    return f"{SAMPLED}-{digest.hexdigest()}"


class Checksums:
    """Checksums of files, cached in the store between commands."""

    def __init__(self, store: Path):
        self._path = store / ".cache" / "checksums.json"
        self._known: dict[str, list[int | str]] = self._load()
        self._changed = False

    @classmethod
    def empty(cls, store: Path) -> "Checksums":
        """Return an object that has forgotten every file, so that all are read again."""
        made = cls(store)
        made._known = {}
        return made

    def _load(self) -> dict[str, list[int | str]]:
        """Read the cache; a damaged one is only a cache, so it is made anew."""
        if not self._path.exists():
            return {}
        content = read_json_object(self._path)
        if content is None or not all(
            isinstance(entry, list) and len(entry) == 4 for entry in content.values()
        ):
            said = f"{self._path}: is damaged; checksums are computed again"
            console.print(said, markup=False, soft_wrap=True)
            return {}
        return content

    def of(self, path: FilePath) -> str:
        """Return the checksum of one file; read it only if size, inode or mtime changed."""
        return self._remembered(str(path.resolve()), path, checksum)

    def of_whole(self, path: Path) -> str:
        """Return the SHA-256 of one file, however large; otherwise as `of`."""
        if path.stat().st_size <= WHOLE_UP_TO:
            return self.of(path)
        return self._remembered(f"{path.resolve()}{WHOLE}", path, sha256)

    def _remembered(self, key: str, path: FilePath, compute: Callable[[FilePath], str]) -> str:
        status = path.stat()
        seen: list[int | str] = [status.st_size, status.st_ino, status.st_mtime_ns]
        remembered = self._known.get(key)
        if remembered is not None and remembered[:3] == seen:
            return str(remembered[3])
        self._known[key] = [*seen, compute(path)]
        self._changed = True
        return str(self._known[key][3])

    def for_manifest(self, path: Path) -> dict[str, int | str]:
        """Return the entry of a finished file in its manifest: size, SHA-256, and for a large file
        also the checksum of sampled blocks."""
        size = path.stat().st_size
        sampled = {SAMPLED: self.of(path)} if size > WHOLE_UP_TO else {}
        return {"size": size, "sha256": self.of_whole(path), **sampled}

    def describe(self, files: Iterable[tuple[str, FilePath]]) -> dict[str, dict[str, int | str]]:
        """Return size and checksum by name of the files a stage reads, for its fingerprint.

        `files` yields (name, path). Raises `UsageError` if a file cannot be read.
        """
        described: dict[str, dict[str, int | str]] = {}
        for name, path in files:
            try:
                described[name] = {"size": path.stat().st_size, "checksum": self.of(path)}
            except OSError as error:
                raise UsageError(f"{path}: cannot be read ({error.strerror})") from error
        return described

    def refuse_changes(
        self, files: Iterable[tuple[str, FilePath]], fingerprinted: Mapping[str, Any]
    ) -> None:
        """Raise `SesameError` if a fingerprinted file changed or is gone. New files are ignored."""
        now = self.describe(
            (name, path)
            for name, path in files
            if name in fingerprinted and (not isinstance(path, Path) or path.exists())
        )
        for name, known in fingerprinted.items():
            if now.get(name) != known:
                what = "changed" if name in now else "is gone"
                raise SesameError(
                    f"{name} {what} after the plan was made; nothing is finished under the old "
                    "fingerprint: run the same command again, which plans anew"
                )

    def save(self) -> None:
        """Write the cache. Commands that only look at the store do not call this."""
        if self._changed:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, json.dumps(self._known))
            self._changed = False
