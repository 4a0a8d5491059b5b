"""bzip2 files of several streams, such as Wikipedia's multistream dumps and what pbzip2 writes.

Every stream starts at a whole byte and can be decompressed by itself, so that several workers may
share a file. Streams are found by the mark they start with.
"""

import bz2
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

# "BZh", the block size, then the first block's mark (π) or, in an empty stream, the end's (√π).
STREAM = re.compile(rb"BZh[1-9](?:1AY&SY|\x17\x72\x45\x38\x50\x90)")
MARK_BYTES = 10
SEARCHED_BYTES = 1 << 20
FIRST_STREAM_BYTES = 64 << 20  # whoever writes several streams makes them a few megabytes at most


def next_stream(raw: BinaryIO, position: int, end: int | None = None) -> int | None:
    """Where the first stream at or after `position` starts, if there is one (before `end`)."""
    while end is None or position < end:
        raw.seek(position)
        data = raw.read(SEARCHED_BYTES)
        found = STREAM.search(data)
        if found:
            return position + found.start()
        if len(data) < MARK_BYTES:
            return None
        position += len(data) - MARK_BYTES + 1  # a mark may lie across the end of what was read
    return None


def has_streams(path: Path) -> bool:
    """Whether a file has more than one stream."""
    with path.open("rb") as raw:
        return next_stream(raw, 1, FIRST_STREAM_BYTES) is not None


def decompress_stream(raw: BinaryIO, start: int, block_bytes: int) -> Iterator[bytes]:
    """The text of the stream at `start`; EOFError or OSError where it breaks off."""
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
