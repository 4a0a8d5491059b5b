"""The user's files: which there are, how they are cut into parts, and their lines.

Reads plain and compressed files (.gz .bz2 .xz .zst) in blocks, so memory never follows their size.
A file cut off in the middle gives all that comes before the cut.
"""

import bz2
import glob
import gzip
import io
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import zstandard

from data_prep.errors import SesameError, UsageError
from data_prep.tally import Tally

BLOCK_BYTES = 1 << 20
PIECE_BYTES = 16 << 20  # raw bytes one piece of work takes, where a file can be cut
LONGEST_BYTES = 64 << 20  # a line or document longer than this is cut, to keep memory bounded

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
# Dumps in several files are called …xml-p10p30302.bz2.
FORMAT = re.compile(
    r"\.(txt|jsonl|csv|tsv|xml)(?:-p\d+p\d+[^.]*)?(\.(?:gz|bz2|xz|zst))?$", re.IGNORECASE
)
ENDINGS = ".txt, .jsonl, .csv, .tsv, .xml, each also with .gz, .bz2, .xz or .zst"
DECODE_ERRORS = (EOFError, OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError)


@dataclass(frozen=True)
class SourceFile:
    """A file of the corpus; `name` is its path below the root the user gave.

    Below a named source it is `<source>/<path>`, and `source` the source's number.
    """

    path: Path
    name: str
    source: int = 0

    @property
    def format(self) -> str:
        """One of txt, jsonl, csv, tsv, xml."""
        return _endings(self.path.name)[0]

    @property
    def compression(self) -> str:
        """The compressed ending with its dot, or nothing."""
        return _endings(self.path.name)[1]


@dataclass(frozen=True)
class Part:
    """The records of a file that start in [start, end) after both ends move to a record's start."""

    file: SourceFile
    start: int
    end: int


def _endings(name: str) -> tuple[str, str]:
    match = FORMAT.search(name)
    assert match, f"{name} was not checked by discover"
    return match[1].lower(), (match[2] or "").lower()


def discover(paths: Any, sources: Mapping[str, Any] | None = None) -> list[SourceFile]:
    """The files that `corpus.paths` or `corpus.sources` means, by name; no name comes twice."""
    if not sources:
        return sorted(_find("corpus.paths", paths), key=lambda file: file.name)
    files: dict[str, SourceFile] = {}
    for number, name in enumerate(sorted(sources)):
        key = f"corpus.sources.{name}"
        for file in sorted(_find(key, sources[name]), key=lambda file: file.name):
            place = os.path.realpath(file.path)
            if place in files:
                raise UsageError(
                    f"{key}: {file.name} is {files[place].name} too; a file has one source"
                )
            files[place] = SourceFile(file.path, f"{name}/{file.name}", number)
    return list(files.values())


def _find(key: str, paths: Any) -> list[SourceFile]:
    given = [paths] if isinstance(paths, str | Path) else list(paths or [])
    if not given:
        raise UsageError(f"{key} is empty: name the files or folders with your text")
    found: dict[str, tuple[int, SourceFile]] = {}
    for number, item in enumerate(given):
        for file in _files_of(key, os.path.expanduser(str(item))):
            found.setdefault(os.path.realpath(file.path), (number, file))
    files = [file for _, file in found.values()]
    if len({file.name for file in files}) < len(files):  # two roots have a file of the same name
        files = [SourceFile(file.path, f"{number}/{file.name}") for number, file in found.values()]
    return files


def _files_of(key: str, item: str) -> list[SourceFile]:
    if os.path.isfile(item):
        if not FORMAT.search(item):
            raise UsageError(f"{key}={item}: cannot tell what this is; known: {ENDINGS}")
        return [SourceFile(Path(item), os.path.basename(item))]
    if os.path.isdir(item):
        files = list(_walk(item, Path(item)))
    elif glob.has_magic(item):
        files = _match(item)
    else:
        raise UsageError(f"{key}={item}: there is no such file or folder")
    if not files:
        raise UsageError(f"{key}={item}: nothing there to read; known: {ENDINGS}")
    return files


def _match(pattern: str) -> list[SourceFile]:
    parts = Path(pattern).parts
    fixed = next(number for number, part in enumerate(parts) if glob.has_magic(part))
    root = Path(*parts[:fixed])
    files: list[SourceFile] = []
    for match in sorted(glob.glob(pattern, recursive=True)):
        if os.path.isdir(match):
            files.extend(_walk(match, root))
        elif FORMAT.search(match):
            files.append(SourceFile(Path(match), Path(match).relative_to(root).as_posix()))
    return files


def _walk(folder: str, root: Path) -> Iterator[SourceFile]:
    seen: set[str] = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        if os.path.realpath(place) in seen:  # a link that leads back up
            folders.clear()
            continue
        seen.add(os.path.realpath(place))
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if FORMAT.search(name) and not name.startswith("."):
                path = Path(place, name)
                yield SourceFile(path, path.relative_to(root).as_posix())


def plan_pieces(
    files: Sequence[SourceFile], whole: Callable[[SourceFile], bool], piece_bytes: int
) -> list[list[Part]]:
    """Cut files into parts and group small ones, in order; `whole` files are never cut.

    The result follows from names and sizes alone, never from the number of workers.
    """
    pieces: list[list[Part]] = []
    filled = piece_bytes
    for file in files:
        size = file.path.stat().st_size
        step = max(size, 1) if whole(file) else piece_bytes
        for start in range(0, size, step):
            part = Part(file, start, min(start + step, size))
            if filled + (part.end - part.start) > piece_bytes:
                pieces.append([])
                filled = 0
            pieces[-1].append(part)
            filled += part.end - part.start
    return pieces


class _ZstdReader(io.BufferedIOBase):
    """zstandard's own reader takes a cut-off file for a complete one; this one notices."""

    def __init__(self, path: Path):
        self._raw = path.open("rb")
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._pending = b""
        self._inside = False

    def read1(self, size: int = -1, /) -> bytes:
        while True:
            data = self._pending or self._raw.read(BLOCK_BYTES // 8)
            if not data:
                if self._inside:
                    raise EOFError
                return b""
            if self._frame.eof:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            text = self._frame.decompress(data)
            self._inside = not self._frame.eof
            self._pending = self._frame.unused_data if self._frame.eof else b""
            if text:
                return text

    def close(self) -> None:
        self._raw.close()
        super().close()


def open_source(file: SourceFile) -> io.BufferedIOBase:
    """Open a file for reading its decompressed bytes in blocks."""
    openers: dict[str, Callable[[Path], Any]] = {
        "": lambda path: path.open("rb"),
        ".gz": gzip.open,
        ".bz2": bz2.open,
        ".xz": lzma.open,
        ".zst": _ZstdReader,
    }
    try:
        return cast(io.BufferedIOBase, openers[file.compression](file.path))
    except OSError as error:
        raise SesameError(f"{file.name} cannot be opened: {error.strerror}") from error


def read_blocks(file: SourceFile, tally: Tally) -> Iterator[bytes]:
    """A file's decompressed bytes; where they break off, that is counted and the rest is lost."""
    stream = open_source(file)
    offset = 0
    try:
        while block := stream.read1(BLOCK_BYTES):  # not read, which loses data at a cut
            if offset == 0:
                _refuse_utf16(file, block)
            yield block
            offset += len(block)
    except DECODE_ERRORS as error:
        if isinstance(error, OSError) and error.errno:  # the disk's fault, not the archive's
            raise SesameError(f"{file.name}, byte {offset}: {error.strerror}") from error
        tally.break_off("truncated or damaged archive", file.name, offset)
    finally:
        stream.close()


def _refuse_utf16(file: SourceFile, block: bytes) -> None:
    if block.startswith(UTF16_MARKS):
        raise SesameError(f"{file.name} is UTF-16; convert it: iconv -f UTF-16 -t UTF-8")


def split_lines(blocks: Iterable[bytes], offset: int = 0) -> Iterator[tuple[int, bytes]]:
    """Lines with their line breaks, each with the offset of its first byte."""
    held: list[bytes] = []
    held_bytes = 0
    for block in blocks:
        # Not splitlines, which also cuts at a lone carriage return.
        first, *middle = block.split(b"\n")
        held.append(first)
        held_bytes += len(first)
        if not middle:
            if held_bytes >= LONGEST_BYTES:
                yield offset, b"".join(held)
                offset += held_bytes
                held, held_bytes = [], 0
            continue
        last = middle.pop()
        for line in (b"".join(held), *middle):
            yield offset, line + b"\n"
            offset += len(line) + 1
        held, held_bytes = [last], len(last)
    if held_bytes:
        yield offset, b"".join(held)


def read_part(
    part: Part, starts_record: Callable[[bytes, bytes], bool], tally: Tally
) -> Iterator[tuple[int, bytes]]:
    """The lines of a part, with offsets; a byte order mark at the file's start is left out.

    `starts_record(line before, line)` tells where a record may start; the line before is empty
    where it is not known. Neighbouring parts ask the same question of the same bytes, so each
    record falls to exactly one of them.
    """
    if part.file.compression:
        lines = split_lines(read_blocks(part.file, tally))
    else:
        lines = _range_lines(part, starts_record)
    for offset, line in lines:
        if offset == 0 and line.startswith(BYTE_ORDER_MARK):
            line = line.removeprefix(BYTE_ORDER_MARK)
        yield offset, line


def _range_lines(
    part: Part, starts_record: Callable[[bytes, bytes], bool]
) -> Iterator[tuple[int, bytes]]:
    with open_source(part.file) as stream:
        _refuse_utf16(part.file, stream.read(2))
        size = os.fstat(stream.fileno()).st_size
        start = _next_record(stream, part.start, starts_record)
        end = size if part.end >= size else _next_record(stream, part.end, starts_record)
        stream.seek(start)
        yield from split_lines(_range_blocks(stream, end - start), start)


def _range_blocks(stream: io.BufferedIOBase, size: int) -> Iterator[bytes]:
    while size > 0 and (block := stream.read(min(BLOCK_BYTES, size))):
        yield block
        size -= len(block)


def _next_record(
    stream: io.BufferedIOBase, position: int, starts_record: Callable[[bytes, bytes], bool]
) -> int:
    if position == 0:
        return 0
    stream.seek(position - 1)
    # The rest of some line: only its line break, if a new line starts at `position`.
    offset = position - 1 + len(stream.readline(LONGEST_BYTES))
    before = b""
    while offset - position < LONGEST_BYTES:
        line = stream.readline(LONGEST_BYTES)
        if not line or starts_record(before, line):
            return offset
        before = line
        offset += len(line)
    return offset
