"""A plain copy of a compressed stream, so that several workers can read one file.

A gzip, xz or zstd stream can be read from its beginning only. One pass decompresses a large file
and writes its text again, in zstd frames of 1 MB that can be read from any place. The copy is about
as large as the original and exists only while the corpus is cleaned. In CSV a row may contain line
breaks, so the pass also notes where rows start; an uncompressed CSV file gets these notes only.
"""

import csv
import io
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

FRAME_BYTES = 1 << 20
LEVEL = 1  # the fastest; the copy is read once
TEXT, NOTES = "text.zst", "notes.json"


@dataclass(frozen=True)
class PlainText:
    """The text of a file that cannot be divided as it is."""

    folder: Path
    size: int  # bytes of text
    is_damaged: bool  # True if the file ends too early
    ends: tuple[int, ...]  # of the frames in the copy; empty if only the rows were noted
    row_starts: tuple[int, ...]  # per frame, the first row at or after its start; of tables only

    @classmethod
    def load(cls, folder: Path) -> "PlainText":
        """Read the notes that `PlainWriter` wrote."""
        notes = json.loads((folder / NOTES).read_bytes())
        ends, row_starts = tuple(notes.pop("ends")), tuple(notes.pop("row_starts"))
        return cls(folder, ends=ends, row_starts=row_starts, **notes)

    def open(self) -> io.BufferedReader:
        """Open the copy for reading from any place."""
        return io.BufferedReader(_Frames(self), FRAME_BYTES)

    def next_row(self, offset: int) -> int:
        """Return where the first row starts that is noted at or after `offset`."""
        frame = -(-offset // FRAME_BYTES)
        return self.row_starts[frame] if frame < len(self.row_starts) else self.size


class PlainWriter:
    """Writes the notes about a text, and its copy if `has_copy`, into a folder."""

    def __init__(self, folder: Path, has_copy: bool):
        self._folder = folder
        self._has_copy = has_copy
        self._size = 0
        self._ends: list[int] = []
        self._row_starts: list[int] = []

    def write(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Copy the blocks of a text, and yield them again for another reader."""
        held = bytearray()
        with (self._folder / TEXT).open("wb") if self._has_copy else io.BytesIO() as copy:
            compress = zstandard.ZstdCompressor(level=LEVEL).compress
            for block in blocks:
                self._size += len(block)
                if self._has_copy:
                    held += block
                    while len(held) >= FRAME_BYTES:
                        copy.write(compress(bytes(held[:FRAME_BYTES])))
                        self._ends.append(copy.tell())
                        del held[:FRAME_BYTES]
                yield block
            if held:
                copy.write(compress(bytes(held)))
                self._ends.append(copy.tell())

    def note_rows(self, lines: Iterable[tuple[int, bytes]]) -> None:
        """Note where the rows of a CSV file start, from its (offset, line) pairs."""
        end = 0

        def texts() -> Iterator[str]:
            nonlocal end
            for offset, line in lines:
                end = offset + len(line)
                yield line.decode("latin-1")  # quotes, commas and line breaks are ASCII

        rows = csv.reader(texts())
        is_left = True
        while is_left:
            start = end
            while len(self._row_starts) * FRAME_BYTES <= start:
                self._row_starts.append(start)
            try:
                is_left = next(rows, None) is not None
            except csv.Error:  # the reader of documents counts it
                continue

    def close(self, is_damaged: bool) -> None:
        """Write the notes; `is_damaged` says that the file ended too early."""
        notes: dict[str, Any] = {
            "size": self._size,
            "is_damaged": is_damaged,
            "ends": self._ends,
            "row_starts": self._row_starts,
        }
        (self._folder / NOTES).write_text(json.dumps(notes))


class _Frames(io.RawIOBase):
    """The text of a copy; one frame is held at a time."""

    def __init__(self, text: PlainText):
        self._text = text
        self._file = (text.folder / TEXT).open("rb")
        self._place = 0
        self._number, self._frame = -1, b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._text.size}[whence]
        self._place = start + offset
        return self._place

    def readinto(self, buffer: Any, /) -> int:
        number, start = divmod(self._place, FRAME_BYTES)
        if number >= len(self._text.ends):
            return 0
        if number != self._number:
            first = self._text.ends[number - 1] if number else 0
            self._file.seek(first)
            data = self._file.read(self._text.ends[number] - first)
            self._frame = zstandard.ZstdDecompressor().decompress(data, FRAME_BYTES)
            self._number = number
        part = self._frame[start : start + len(buffer)]
        buffer[: len(part)] = part
        self._place += len(part)
        return len(part)

    def close(self) -> None:
        self._file.close()
        super().close()
