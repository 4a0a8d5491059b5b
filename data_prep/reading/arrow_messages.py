"""Read the messages of an Arrow file one by one: `.arrow` and `.feather`, also datasets' files.

An Arrow stream is a schema, dictionaries and batches of rows, each a message with a header in
FlatBuffers (arrow/format/Message.fbs). An Arrow file has the same messages after eight bytes. The
header states the number of rows and where the buffers are. pyarrow gives the raw header only, so
the few fields are read here: a batch that another worker reads is skipped without being decoded,
and one that would expand too far is refused before memory is allocated.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

FILE_MAGIC = b"ARROW1"
FILE_START = 8  # the magic and two bytes of padding
# Numbers of fields in Message.fbs.
HEADER, ROWS, BUFFERS, COMPRESSION, DICTIONARY = 2, 0, 2, 3, 1
BUFFER_BYTES = 16  # offset and length of a buffer


@dataclass(frozen=True)
class Batch:
    """A batch of rows that is not decoded yet."""

    place: int  # of its message in the file
    rows: int
    stored: int  # bytes in the file
    expanded: int  # bytes that its buffers have when they are decompressed
    message: pa.Message
    before: tuple[pa.Message, ...]  # the schema and the dictionaries that it needs

    def decode(self) -> pa.RecordBatch:
        """Return the rows; raises pyarrow's errors if the batch is damaged."""
        parts = [message.serialize().to_pybytes() for message in self.before]
        stream = pa.BufferReader(b"".join([*parts, self.message.serialize().to_pybytes()]))
        batch = pa.ipc.open_stream(stream).read_next_batch()
        batch.validate(full=True)
        return batch


def read_schema(source: pa.NativeFile) -> pa.Message:
    """Read the first message of an open file: its schema."""
    source.seek(FILE_START if source.read(len(FILE_MAGIC)) == FILE_MAGIC else 0)
    message = pa.ipc.read_message(source)
    if message.type != "schema":
        raise ValueError("the file does not begin with a schema")
    return message


def read_batches(source: pa.NativeFile, schema: pa.Message) -> Iterator[Batch]:
    """Yield the batches that follow the schema.

    Raises EOFError at the end of a truncated file, and ValueError at other damage.
    """
    before = [schema]
    while True:
        place = source.tell()
        try:
            message = pa.ipc.read_message(source)
        except EOFError:
            if source.tell() - place < 4:  # not even the mark of the end
                raise
            return
        rows, expanded = _sizes(message)
        if message.type == "dictionary":
            before.append(message)
        else:
            stored = message.body.size if message.body is not None else 0
            others = sum(_sizes(each)[1] for each in before[1:])
            yield Batch(place, rows, stored, expanded + others, message, tuple(before))


def _sizes(message: pa.Message) -> tuple[int, int]:
    """Return the rows of a message and the bytes of its decompressed buffers."""
    header = message.metadata.to_pybytes()
    body = message.body
    try:
        batch = _Table(header, _follow(header, 0)).table(HEADER)
        if message.type == "dictionary":
            batch = batch.table(DICTIONARY)
        rows = batch.number(ROWS)
        buffers = batch.buffers(BUFFERS)
        if batch.place_of(COMPRESSION) is None or body is None:
            return rows, sum(length for _, length in buffers)
        return rows, sum(_expanded(body, place, length) for place, length in buffers)
    except struct.error as error:
        raise ValueError("damaged message") from error


def _expanded(body: pa.Buffer, place: int, length: int) -> int:
    """Return the size that a compressed buffer states in its first eight bytes; −1: as stored."""
    if not length:
        return 0
    (size,) = struct.unpack("<q", body[place : place + 8].to_pybytes())
    return length if size < 0 else int(size)


def _follow(data: bytes, place: int) -> int:
    (offset,) = struct.unpack_from("<I", data, place)
    return place + int(offset)


@dataclass(frozen=True)
class _Table:
    """A table of FlatBuffers: its fields are found through a list of offsets, the vtable."""

    data: bytes
    place: int

    def place_of(self, field: int) -> int | None:
        """Return the place of a field's value, or None if it is absent."""
        (back,) = struct.unpack_from("<i", self.data, self.place)
        vtable = self.place - back
        (size,) = struct.unpack_from("<H", self.data, vtable)
        slot = 4 + 2 * field
        if slot >= size:
            return None
        (offset,) = struct.unpack_from("<H", self.data, vtable + slot)
        return self.place + offset if offset else None

    def table(self, field: int) -> "_Table":
        place = self.place_of(field)
        if place is None:
            raise ValueError("damaged message")
        return _Table(self.data, _follow(self.data, place))

    def number(self, field: int) -> int:
        place = self.place_of(field)
        return 0 if place is None else int(struct.unpack_from("<q", self.data, place)[0])

    def buffers(self, field: int) -> list[tuple[int, int]]:
        """Return the (offset, length) pairs of a vector of buffers."""
        place = self.place_of(field)
        if place is None:
            return []
        first = _follow(self.data, place)
        (count,) = struct.unpack_from("<I", self.data, first)
        end = first + 4 + count * BUFFER_BYTES
        if end > len(self.data):
            raise ValueError("damaged message")
        return list(struct.iter_unpack("<qq", self.data[first + 4 : end]))
