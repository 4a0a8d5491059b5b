"""Files of example rows: the `examples` stage writes them, training reads them by chunk.

A chunk is a few hundred rows as columns (see `columns`); reading one takes a single seek. Every
column is one `.npy` member (`<chunk>.<column>.npy`) of a tar that webdataset can read too. The
column `word_flips` has one bit per token, and is there only in chunks with such tokens. Each tar
has an index `<tar>.index.json` with the size, offset and checksum of every chunk.

Reads and writes `<folder>/<split>-00000.tar`, `<folder>/<split>-00000.tar.index.json`, and so on.
"""

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from hashlib import sha256
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from data_prep.errors import SesameError
from data_prep.examples.columns import (
    ALWAYS_COLUMNS,
    DTYPES,
    STATIC_COLUMNS,
    WORD_FLIPS,
    Array,
    Chunk,
    concatenate,
    token_dtype,
)
from data_prep.examples.tar_members import BLOCK, NPY_BYTES, NPY_HEADER, tar_member
from data_prep.files import atomic_write, write_atomically

__all__ = ["Array", "Chunk", "ChunkStore", "ChunkWriter", "concatenate", "token_dtype"]

REMEDY = "restore the file, or make it again with sesame repair"
END_OF_TAR = bytes(2 * BLOCK)
OPEN_TARS = 256  # descriptors that a store keeps; many systems allow a process 1,024
FACTS = ("rows", "examples", "tokens", "offset", "bytes", "crc32")  # per chunk, in the index


def _parse(number: int, content: bytes, names: Sequence[str], vocab_size: int) -> Chunk | str:
    """Parse chunk `number` from its bytes; return the chunk, or a description of the damage."""
    arrays: dict[str, Array] = {}
    position = 0
    for name in (*names, WORD_FLIPS):
        header = content[position : position + BLOCK]
        if name == WORD_FLIPS and not header:
            break
        if header[:100].rstrip(b"\0") != f"{number:08d}.{name}.npy".encode():
            return f"column {name} is missing or out of order"
        if header[156:157] != b"0" or not header[124:135].isdigit():
            return f"column {name} is not a regular tar member"
        size = int(header[124:135], 8)
        position += BLOCK
        match = NPY_HEADER.fullmatch(content[position : position + NPY_BYTES])
        if match is None:
            return f"column {name} is not a plain .npy array"
        wanted = DTYPES.get(name) or token_dtype(vocab_size)
        if match[1].decode() != wanted:
            return f"column {name} has type {match[1].decode()}, not {wanted}"
        shape = tuple(int(length) for length in match.groups()[1:] if length is not None)
        count = prod(shape)
        end = position + size
        if size != NPY_BYTES + count * np.dtype(wanted).itemsize or end > len(content):
            return f"column {name} does not have the size of its shape {shape}"
        array = np.frombuffer(content, wanted, count, position + NPY_BYTES)
        arrays[name] = array.reshape(shape)
        position = end + -size % BLOCK
    if position != len(content):
        return "there is data after the last column"
    if WORD_FLIPS in arrays:
        packed, tokens = arrays[WORD_FLIPS], len(arrays["tokens"])
        if packed.shape != (-(-tokens // 8),):
            return f"column {WORD_FLIPS} does not match the number of tokens"
        arrays[WORD_FLIPS] = np.unpackbits(packed, count=tokens)
    chunk = Chunk(**arrays)
    return chunk.problem(vocab_size) or chunk


class ChunkWriter:
    """Writes rows as chunks of `chunk_rows` rows to tars of at most `shard_size` bytes.

    Each tar and index appears atomically. A chunk larger than `shard_size` gets its own tar. The
    split is complete after `close`; use it as a context manager.
    tars, chunks: the numbers of the first ones it writes, if others write the tars before them;
    has_next: others write tars after them.
    """

    def __init__(
        self,
        folder: Path,
        split: str,
        *,
        shard_size: int,
        chunk_rows: int,
        vocab_size: int,
        static: bool,
        tars: int = 0,
        chunks: int = 0,
        has_next: bool = False,
    ):
        self.rows = self.examples = self.tokens = 0
        self.tars, self.chunks, self._has_next = tars, chunks, has_next
        self._folder, self._split = folder, split
        self._shard_size, self._chunk_rows = shard_size, chunk_rows
        self._vocab_size = vocab_size
        self._columns = [*ALWAYS_COLUMNS, *(STATIC_COLUMNS if static else ())]
        self._pending: list[Chunk] = []
        self._pending_rows = 0
        self._open = ExitStack()
        self._stream: BinaryIO | None = None
        self._written = 0
        self._facts: list[dict[str, int]] = []

    def add(self, rows: Chunk) -> None:
        """Add any number of rows; chunk borders do not depend on how rows are grouped in calls."""
        if rows.rows == 0:
            return
        self._pending.append(rows)
        self._pending_rows += rows.rows
        if self._pending_rows >= self._chunk_rows:
            joined = concatenate(self._pending)
            whole = joined.rows - joined.rows % self._chunk_rows
            for start in range(0, whole, self._chunk_rows):
                self.append(joined.between(start, start + self._chunk_rows))
            self._pending_rows = joined.rows - whole
            self._pending = [joined.between(whole, joined.rows)] if self._pending_rows else []

    def append(self, chunk: Chunk) -> None:
        """Write these rows, of any number, as one chunk."""
        columns = chunk.columns()
        flips = columns.pop(WORD_FLIPS, None)
        assert list(columns) == self._columns, f"{list(columns)} are other columns"
        problem = chunk.problem(self._vocab_size)
        assert problem is None, problem
        if flips is not None:
            columns[WORD_FLIPS] = np.packbits(flips)
        content = b"".join(
            tar_member(f"{self.chunks:08d}.{name}.npy", array) for name, array in columns.items()
        )
        if self._facts and self._written + len(content) + len(END_OF_TAR) > self._shard_size:
            self._finish_tar(last=False)
        self._start_tar().write(content)
        facts = (chunk.rows, chunk.examples, len(chunk.tokens), self._written, len(content))
        self._facts.append(dict(zip(FACTS, (*facts, zlib.crc32(content)), strict=True)))
        self._written += len(content)
        self.chunks += 1
        self.rows += chunk.rows
        self.examples += chunk.examples
        self.tokens += len(chunk.tokens)

    def close(self) -> None:
        """Write the remaining rows and the last index, which completes the split."""
        if self._pending:
            self.append(concatenate(self._pending))
            self._pending, self._pending_rows = [], 0
        self._start_tar()
        self._finish_tar(last=not self._has_next)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self._open.__exit__(kind, error, traceback)

    def _start_tar(self) -> BinaryIO:
        if self._stream is None:
            self._stream = self._open.enter_context(atomic_write(self._path()))
        return self._stream

    def _finish_tar(self, last: bool) -> None:
        assert self._stream is not None
        self._stream.write(END_OF_TAR)
        self._open.close()
        index = {
            "columns": self._columns,
            "dtype": token_dtype(self._vocab_size),
            "vocab_size": self._vocab_size,
            "first": self.chunks - len(self._facts),
            "last": last,
            "chunks": self._facts,
        }
        write_atomically(_index_path(self._path()), json.dumps(index) + "\n")
        self._stream, self._written, self._facts = None, 0, []
        self.tars += 1

    def _path(self) -> Path:
        return self._folder / f"{self._split}-{self.tars:05d}.tar"


def _index_path(tar: Path) -> Path:
    return tar.with_name(f"{tar.name}.index.json")


class _OpenTars:
    """Reads byte ranges of files, and keeps the descriptors of the `OPEN_TARS` used last.

    A descriptor has no position of its own here (`pread`), so processes can inherit it. A pickled
    copy starts without descriptors.
    """

    def __init__(self) -> None:
        self._descriptors: dict[Path, int] = {}  # the one used last comes last

    def read(self, path: Path, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset` on, or fewer if the file ends before."""
        descriptor = self._descriptor(path)
        parts: list[bytes] = []
        while size and (part := os.pread(descriptor, size, offset)):
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _descriptor(self, path: Path) -> int:
        descriptor = self._descriptors.pop(path, None)
        if descriptor is None:
            descriptor = os.open(path, os.O_RDONLY)
            if len(self._descriptors) >= OPEN_TARS:
                os.close(self._descriptors.pop(next(iter(self._descriptors))))
        self._descriptors[path] = descriptor
        return descriptor

    def __del__(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)

    def __reduce__(self) -> tuple[type["_OpenTars"], tuple[()]]:
        return _OpenTars, ()


class ChunkStore:
    """Reads the chunks of a split by number.

    All indexes are read and checked at construction. A tar is opened when its first chunk is read,
    and stays open. Raises SesameError if a file is missing or damaged.
    only: the number of the one tar that is read; its chunks keep their numbers in the split.
    """

    def __init__(self, folder: Path, split: str, only: int | None = None):
        self.folder, self.split = folder, split
        self._only, self._first = only, 0
        self.columns: list[str] = []
        self.vocab_size = 0
        self._paths: list[Path] = []
        self._open_tars = _OpenTars()
        tables: list[Array] = []
        digest = sha256()
        for index, is_last in self._indexes():
            table = np.array(
                [[chunk[fact] for fact in FACTS] for chunk in index["chunks"]], np.int64
            ).reshape(-1, len(FACTS))
            digest.update(table.tobytes())
            tables.append(table)
            if is_last or only is not None:
                break
        table = np.concatenate(tables)
        self._tar_of_chunk = np.repeat(np.arange(len(tables)), [len(part) for part in tables])
        self._table = table
        self.rows_per_chunk: NDArray[np.int64] = table[:, 0].copy()
        self.tokens_per_chunk: NDArray[np.int64] = table[:, 2].copy()
        self.first_row: NDArray[np.int64] = np.cumsum(table[:, 0]) - table[:, 0]
        self.rows, self.examples, self.tokens = (int(total) for total in table[:, :3].sum(axis=0))
        self.digest = digest.hexdigest()  # over the sizes and checksums of all chunks

    @property
    def chunks(self) -> int:
        return len(self._table)

    @property
    def static(self) -> bool:
        """True if masks are stored with the rows."""
        return "target" in self.columns

    def path_of(self, number: int) -> Path:
        """Return the tar that holds a chunk."""
        return self._paths[int(self._tar_of_chunk[number - self._first])]

    def read(self, number: int) -> Chunk:
        """Read one chunk; raises SesameError if its checksum or its contents are wrong."""
        path = self.path_of(number)
        facts = self._table[number - self._first].tolist()
        rows, examples, tokens, offset, size, checksum = facts
        try:
            content = self._open_tars.read(path, offset, size)
        except OSError as error:
            raise SesameError(f"{path}: chunk {number} cannot be read: {error.strerror}") from error
        if len(content) != size or zlib.crc32(content) != checksum:
            raise _damaged(path, f"chunk {number} at byte {offset} does not match its checksum")
        chunk = _parse(number, content, self.columns, self.vocab_size)
        if isinstance(chunk, str):
            raise _damaged(path, f"chunk {number} at byte {offset}: {chunk}")
        if (chunk.rows, chunk.examples, len(chunk.tokens)) != (rows, examples, tokens):
            raise _damaged(path, f"chunk {number} at byte {offset} is not the one in the index")
        return chunk

    def _indexes(self) -> Iterator[tuple[dict[str, Any], bool]]:
        """Yield the checked index of every tar in order, and its `last` flag.

        Fills `columns`, `vocab_size` and `_paths`.
        """
        first = 0
        while True:
            path = self.folder / f"{self.split}-{(self._only or 0) + len(self._paths):05d}.tar"
            index = _read_index(path)
            if self._only is not None:
                self._first = first = index.get("first", 0)
            _check_index(path, index, first)
            columns, vocab_size = index["columns"], index["vocab_size"]
            if self._paths and (columns, vocab_size) != (self.columns, self.vocab_size):
                raise _damaged(path, "its columns differ from those of the files before it")
            self.columns, self.vocab_size = columns, vocab_size
            self._paths.append(path)
            first += len(index["chunks"])
            yield index, index["last"]


def _damaged(path: Path, what: str) -> SesameError:
    return SesameError(
        f"{path}: damaged: {what}; restore the file, or make it again with sesame repair"
    )


def _read_index(tar: Path) -> dict[str, Any]:
    path = _index_path(tar)
    try:
        index = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise SesameError(f"{path}: missing; {REMEDY}") from error
    except ValueError as error:  # bad JSON and bad UTF-8 alike
        raise _damaged(path, "it is not JSON") from error
    if not isinstance(index, dict):
        raise _damaged(path, "it is not an index")
    return index


def _check_index(tar: Path, index: dict[str, Any], first: int) -> None:
    """Raise SesameError unless the index describes chunks that fill exactly its tar."""
    path = _index_path(tar)
    dynamic, static = [*ALWAYS_COLUMNS], [*ALWAYS_COLUMNS, *STATIC_COLUMNS]
    if index.get("columns") not in (static, dynamic) or index.get("dtype") not in ("<u2", "<u4"):
        raise _damaged(path, "it names columns or types of another format")
    chunks = index.get("chunks")
    if index.get("first") != first or not isinstance(index.get("last"), bool):
        raise _damaged(path, f"it does not continue at chunk {first}")
    if not isinstance(chunks, list):
        raise _damaged(path, "it lists no chunks")
    end = 0
    for number, chunk in enumerate(chunks, first):
        is_sound = isinstance(chunk, dict) and all(type(chunk.get(fact)) is int for fact in FACTS)
        if not is_sound or chunk["offset"] != end or chunk["bytes"] <= 0 or chunk["rows"] <= 0:
            raise _damaged(path, f"chunk {number} does not follow the one before it")
        end += chunk["bytes"]
    if not tar.is_file():
        raise SesameError(f"{tar}: missing; {REMEDY}")
    size = tar.stat().st_size
    if size != end + len(END_OF_TAR):
        cut = sum(chunk["offset"] + chunk["bytes"] <= size for chunk in chunks)
        raise _damaged(
            tar, f"{size} bytes, not {end + len(END_OF_TAR)}; whole only up to chunk {first + cut}"
        )
