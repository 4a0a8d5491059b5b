"""Files that appear whole or not at all, and checksums of what they hold."""

import hashlib
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

BLOCK = 1 << 20


@contextmanager
def atomic_write(
    path: Path, before_rename: Callable[[], None] = lambda: None
) -> Iterator[BinaryIO]:
    """Open `path` for writing; it takes its name, synced to disk, only if the block succeeds.

    `before_rename` is called when all is on the disk; the file does not appear if it raises.
    """
    # Not the process id, which two nodes that share a disk may have in common.
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with open(partial, "wb") as stream:
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
    """Write a small file whole."""
    with atomic_write(path, before_rename) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)


def reserve(path: Path) -> None:
    """Take all of a mapped file's room on the disk; a page without any kills who writes to it."""
    with open(path, "r+b") as stream:
        size = os.fstat(stream.fileno()).st_size
        os.posix_fallocate(stream.fileno(), 0, size)


def sync_directory(path: Path) -> None:
    """Make renames inside `path` durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """The checksum of a whole file, as `sha256sum` prints it."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
