"""Read bzip2 files of several streams, such as Wikipedia's multistream dumps and pbzip2's files.

Every stream starts at a byte boundary and can be decompressed by itself, so several workers can
share a file. A stream is found by its magic bytes.
"""

import bz2
import re
from collections.abc import Iterator
from typing import BinaryIO

from data_prep.reading.source_files import FilePath

# "BZh", the block size, then the magic of the first block (digits of π) or, in an empty stream, of
# the end (digits of √π).
STREAM = re.compile(rb"BZh[1-9](?:1AY&SY|\x17\x72\x45\x38\x50\x90)")
MARK_BYTES = 10
SEARCHED_BYTES = 1 << 20
FIRST_STREAM_BYTES = 64 << 20  # streams of multistream files have a few megabytes at most


def next_stream(raw: BinaryIO, position: int, end: int | None = None) -> int | None:
    """Return the offset of the first stream at or after `position`, or None.

    The search stops soon after `end`, if that is given.
    """
    while end is None or position < end:
        raw.seek(position)
        data = raw.read(SEARCHED_BYTES)
        found = STREAM.search(data)
        if found:
            return position + found.start()
        if len(data) < MARK_BYTES:
            return None
        position += len(data) - MARK_BYTES + 1  # the magic may cross the end of the block
    return None


def has_streams(path: FilePath) -> bool:
    """Return True if a file has more than one stream."""
    with path.open("rb") as raw:
        return next_stream(raw, 1, FIRST_STREAM_BYTES) is not None


def decompress_stream(raw: BinaryIO, start: int, block_bytes: int) -> Iterator[bytes]:
    """Yield the text of the stream at `start`; raises EOFError or OSError if it is damaged."""
    decompressor = bz2.BZ2Decompressor()
    position = start
    while not decompressor.eof:
        data = b""
        if decompressor.needs_input:
            raw.seek(position)
            data = raw.read(block_bytes // 8)
            position += len(data)
            if not data:
                raise EOFError
        text = decompressor.decompress(data, block_bytes)
        if text:
            yield text
