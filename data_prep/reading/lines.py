"""Read the lines of a part of a source file, decompressed, each with its offset.

Plain and compressed files (.gz .bz2 .xz .zst) are read in blocks, so memory does not grow with the
file. A truncated file gives all lines before the damage; a bzip2 file of several streams gives all
streams but the damaged one.
"""

import bz2
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

import zstandard

from data_prep.errors import SesameError
from data_prep.reading.bzip2 import decompress_stream, next_stream
from data_prep.reading.plain_text import PlainText
from data_prep.reading.source_files import Part, SourceFile
from data_prep.reading.tally import Tally
from data_prep.reading.zstd import ZstdReader

BLOCK_BYTES = 1 << 20
STREAM_STEP = 10**9  # more than the text of a stream has bytes, unless it is the only one
LONGEST_BYTES = 64 << 20  # longer lines and documents are split, to bound memory
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
DECODE_ERRORS = (EOFError, OSError, MemoryError, zlib.error, lzma.LZMAError, zstandard.ZstdError)
DAMAGED = "truncated or damaged archive"

StartsRecord = Callable[[bytes, bytes], bool]


@contextmanager
def open_source(file: SourceFile) -> Iterator[io.BufferedIOBase]:
    """Open a file for reading its decompressed bytes; raises SesameError if it cannot be opened."""
    openers: dict[str, Callable[[BinaryIO], Any]] = {
        "": lambda raw: raw,
        ".gz": gzip.open,
        ".bz2": bz2.open,
        ".xz": lzma.open,
        ".zst": ZstdReader,
    }
    try:
        raw = file.path.open("rb")
    except OSError as error:
        raise SesameError(f"{file.name} cannot be opened: {error.strerror}") from error
    with raw:
        yield cast(io.BufferedIOBase, openers[file.compression](raw))


def read_blocks(file: SourceFile, tally: Tally) -> Iterator[bytes]:
    """Yield the decompressed bytes of a file in blocks.

    At damage in an archive it stops and counts it in `tally`. Raises SesameError at disk errors.
    """
    offset = 0
    try:
        with open_source(file) as stream:
            # read1 returns the data before the damage of a truncated archive; read would lose it.
            while block := stream.read1(BLOCK_BYTES):
                if offset == 0:
                    _refuse_utf16(file, block)
                yield block
                offset += len(block)
    except DECODE_ERRORS as error:
        if isinstance(error, OSError) and error.errno:  # an error of the disk, not of the archive
            raise _unreadable(file, offset, error) from error
        if isinstance(error, MemoryError) or "memory" in str(error):
            raise SesameError(
                f"{file.name} needs too much memory: its {file.compression} window is too large; "
                "lower corpus.workers, or compress the file again with a smaller one"
            ) from error
        tally.break_off(DAMAGED, file.name, offset)


def _unreadable(file: SourceFile, offset: int, error: OSError) -> SesameError:
    return SesameError(f"{file.name}, byte {offset}: {error.strerror}")


def _refuse_utf16(file: SourceFile, block: bytes) -> None:
    if block.startswith(UTF16_MARKS):
        raise SesameError(f"{file.name} is UTF-16; convert it: iconv -f UTF-16 -t UTF-8")


def split_lines(blocks: Iterable[bytes], offset: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield (offset of the first byte, line with its line break); `offset` is that of the blocks.

    A line longer than LONGEST_BYTES comes in several parts.
    """
    held: list[bytes] = []
    held_bytes = 0
    for block in blocks:
        # Not splitlines, which also splits at a lone carriage return.
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


def read_part(part: Part, starts_record: StartsRecord, tally: Tally) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, line) for the lines of the records of a part; strips a byte order mark.

    `starts_record(line before, line)` returns True if a record may start at the line; the line
    before is empty if it is unknown. Adjacent parts apply it to the same bytes, so every record
    belongs to exactly one part.
    """
    if part.file.plain is not None:
        lines = _plain_lines(part, part.file.plain, starts_record, tally)
    elif part.file.compression == ".bz2":
        lines = _stream_lines(part, starts_record, tally)
    elif part.file.compression:
        lines = split_lines(read_blocks(part.file, tally))
    else:
        lines = _range_lines(part, starts_record)
    for offset, line in lines:
        if offset == 0 and line.startswith(BYTE_ORDER_MARK):
            line = line.removeprefix(BYTE_ORDER_MARK)
            tally.repaired["byte_order_mark"] += 1
        yield offset, line


def _stream_lines(
    part: Part, starts_record: StartsRecord, tally: Tally
) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of the bzip2 streams that start in a part, up to the next record.

    All lines up to the first record start in a part belong to the part before, including the rest
    of a line. An offset is STREAM_STEP × the byte at which the line's stream starts in the file,
    plus the position in the stream's text: no two lines share one.
    """
    marks: list[tuple[int, int]] = []  # per stream: offset of its text, its offset in the file
    began = part.start == 0
    before_begin: bytes | None = None  # the line before; None until the first line has ended
    before_end: bytes | None = None  # the line before, once past the part's end
    for place, line in split_lines(_read_streams(part, marks, tally)):
        if before_end is not None and starts_record(before_end, line):
            return
        if not began and before_begin is not None:
            began = starts_record(before_begin, line)
        while len(marks) > 1 and marks[1][0] <= place:
            del marks[0]
        if began:
            yield place - marks[0][0] + marks[0][1] * STREAM_STEP, line
        before_begin = b"" if before_begin is None else line
        if before_end is not None:
            before_end = line
        elif any(start >= part.end and place + len(line) > text for text, start in marks):
            before_end = b""


def _read_streams(part: Part, marks: list[tuple[int, int]], tally: Tally) -> Iterator[bytes]:
    """Yield the text of all streams from a part's start to the file's end.

    Appends to `marks`, per stream, the offset of its text and its offset in the file. Only damage
    inside the part is counted in `tally`.
    """
    done = 0
    with part.file.path.open("rb") as raw:
        start = 0 if part.start == 0 else next_stream(raw, part.start)
        if start is None or start >= part.end:
            return
        while start is not None:
            marks.append((done, start))
            inside = 0
            try:
                for block in decompress_stream(raw, start, BLOCK_BYTES):
                    if done == 0 and start == 0:
                        _refuse_utf16(part.file, block)
                    yield block
                    done += len(block)
                    inside += len(block)
            except (EOFError, OSError) as error:
                if isinstance(error, OSError) and error.errno:
                    raise _unreadable(part.file, start, error) from error
                if start < part.end:
                    tally.break_off(DAMAGED, part.file.name, start + inside)
            start = next_stream(raw, start + 1)


def _range_lines(part: Part, starts_record: StartsRecord) -> Iterator[tuple[int, bytes]]:
    with open_source(part.file) as stream:
        _refuse_utf16(part.file, stream.read(2))
        size = stream.seek(0, os.SEEK_END)
        start = _next_record(stream, part.start, starts_record)
        end = size if part.end >= size else _next_record(stream, part.end, starts_record)
        stream.seek(start)
        yield from split_lines(_range_blocks(stream, end - start), start)


def _plain_lines(
    part: Part, plain: PlainText, starts_record: StartsRecord, tally: Tally
) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a part whose bounds are offsets in the plain text."""
    with plain.open() if plain.ends else open_source(part.file) as stream:
        if plain.row_starts:
            start, end = plain.next_row(part.start), plain.next_row(part.end)
        else:
            start = _next_record(stream, part.start, starts_record)
            is_last = part.end >= plain.size
            end = plain.size if is_last else _next_record(stream, part.end, starts_record)
        stream.seek(start)

        def blocks() -> Iterator[bytes]:
            yield from _range_blocks(stream, end - start)
            if plain.is_damaged and part.end >= plain.size:
                # Before the last line, which the damage may have cut, as in `read_blocks`.
                tally.break_off(DAMAGED, part.file.name, plain.size)

        yield from split_lines(blocks(), start)


def _range_blocks(stream: io.BufferedIOBase, size: int) -> Iterator[bytes]:
    while size > 0 and (block := stream.read(min(BLOCK_BYTES, size))):
        yield block
        size -= len(block)


def _next_record(stream: io.BufferedIOBase, position: int, starts_record: StartsRecord) -> int:
    if position == 0:
        return 0
    stream.seek(position - 1)
    # Skip the rest of the line; from position - 1, so that a line that starts here is not skipped.
    offset = position - 1 + len(stream.readline(LONGEST_BYTES))
    before = b""
    while offset - position < LONGEST_BYTES:
        line = stream.readline(LONGEST_BYTES)
        if not line or starts_record(before, line):
            return offset
        before = line
        offset += len(line)
    return offset
