"""Atomic file writes, durable renames, and checksums."""

import hashlib
import io
import json
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

BLOCK = 1 << 20


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add `path` to an OSError of the block that names no file, such as a write to a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def atomic_write(
    path: Path, before_rename: Callable[[], None] = lambda: None
) -> Iterator[BinaryIO]:
    """Open a temporary file; sync it and rename it to `path` when the block succeeds.

    `before_rename` is called after the sync. If it or the block raises, `path` is not changed.
    """
    # Not the process id: two nodes that share a disk may have processes with the same id.
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with naming(path), open(partial, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        before_rename()
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_atomically(
    path: Path, content: bytes | str, before_rename: Callable[[], None] = lambda: None
) -> None:
    """Write a small file atomically; the arguments are those of `atomic_write`."""
    with atomic_write(path, before_rename) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)


def is_text(name: str) -> bool:
    """Return True if a name is valid UTF-8. Python keeps other bytes of a name as surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def sync_directory(path: Path) -> None:
    """Sync the directory `path`, so that renames inside it survive a crash."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Opens(Protocol):
    """A path whose file can be opened for reading bytes."""

    def open(self, mode: Literal["rb"]) -> io.BufferedReader:
        """Open the file."""


def sha256(path: Opens) -> str:
    """Return the SHA-256 of a file in hex, as `sha256sum` prints it."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_json_object(path: Path) -> dict[str, Any] | None:
    """Read a JSON object; None if the file is not one. Raises OSError if it cannot be read."""
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
