"""Read zstd files block by block, so that memory is bounded whatever a file expands to.

A frame is a header and blocks; a block expands to at most 128 KB (RFC 8878, section 3.1.1.2). The
decompressor gets one block at a time. A few kilobytes may hold thousands of blocks.
"""

import io
from collections.abc import Iterator
from typing import BinaryIO

import zstandard

# The largest window of the format (zstd --ultra --long=31). The decoder allocates the window that a
# file declares; most files declare 8 MB or less.
WINDOW_BYTES = 1 << 31
FRAME = b"\x28\xb5\x2f\xfd"
SKIPPABLE = tuple(bytes([low, 0x2A, 0x4D, 0x18]) for low in range(0x50, 0x60))  # holds no text
MOST_HEADER_BYTES = 18
BLOCK_HEADER_BYTES, CHECKSUM_BYTES = 3, 4
RUN = 1  # the type of a block that is one repeated byte


class ZstdReader(io.BufferedIOBase):
    """The text of a zstd file.

    `read1` raises EOFError at the end of a truncated file, and ZstdError at other damage;
    zstandard's own reader takes a truncated file for a complete one.
    """

    def __init__(self, raw: BinaryIO):
        self._raw = raw
        self._texts = self._read_frames()

    def read1(self, size: int = -1, /) -> bytes:
        """Return the text of the next block, of at most 128 KB; `size` is not used."""
        return next(self._texts, b"")

    def _read_frames(self) -> Iterator[bytes]:
        while magic := self._raw.read(len(FRAME)):
            if magic in SKIPPABLE:
                self._raw.seek(int.from_bytes(take(self._raw, 4), "little"), io.SEEK_CUR)
                continue
            if magic != FRAME:
                raise zstandard.ZstdError("a frame was expected")
            frame = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES).decompressobj()
            for block in _frame_parts(self._raw):
                if text := frame.decompress(block):
                    yield text
            if not frame.eof:
                raise EOFError


def _frame_parts(raw: BinaryIO) -> Iterator[bytes]:
    """Yield the header of the frame whose magic was read, its blocks, and its checksum."""
    start = raw.tell() - len(FRAME)
    raw.seek(start)
    # A short frame may end before the longest header would; the padding is not part of its header.
    beginning = raw.read(MOST_HEADER_BYTES).ljust(MOST_HEADER_BYTES, b"\0")
    has_checksum = zstandard.get_frame_parameters(beginning).has_checksum
    raw.seek(start)
    yield take(raw, zstandard.frame_header_size(beginning))
    is_last = False
    while not is_last:
        header = take(raw, BLOCK_HEADER_BYTES)
        number = int.from_bytes(header, "little")
        is_last, kind, size = bool(number & 1), number >> 1 & 3, number >> 3
        yield header + take(raw, 1 if kind == RUN else size)
    if has_checksum:
        yield take(raw, CHECKSUM_BYTES)


def take(raw: BinaryIO, count: int) -> bytes:
    """Return the next `count` bytes; raises EOFError if the file ends before."""
    data = raw.read(count)
    if len(data) < count:
        raise EOFError
    return data
