"""Read the sizes and places of a Parquet file's row groups, before pyarrow reads any of them.

A footer is a structure in Thrift's compact protocol (parquet-format, parquet.thrift). pyarrow can
read it too, but it ends the whole process when the description of a column is damaged.
"""

import os
import struct
from dataclasses import dataclass
from typing import Any

from data_prep.reading.source_files import FilePath

MAGIC = b"PAR1"
TAIL_BYTES = 8  # the footer's length and the magic
TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
WHOLE_NUMBERS = (4, 5, 6)  # of 16, 32 and 64 bits
MOST_NESTED = 20
# Numbers of fields in parquet.thrift.
ROW_GROUPS, COLUMNS, ROWS, COLUMN_METADATA = 4, 1, 3, 3
PATH, UNCOMPRESSED, COMPRESSED, DATA_PAGE, DICTIONARY_PAGE = 3, 6, 7, 9, 11


@dataclass(frozen=True)
class Column:
    """A column of a row group: its name, stated sizes, and the offset of its first page."""

    name: str
    uncompressed: int
    compressed: int
    first_byte: int


@dataclass(frozen=True)
class RowGroup:
    """A row group."""

    rows: int
    columns: list[Column]


def read_row_groups(path: FilePath) -> list[RowGroup]:
    """Return the row groups of a file; raises ValueError if its footer is damaged."""
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - TAIL_BYTES))
        tail = stream.read()
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != MAGIC or length > size - TAIL_BYTES:
            raise ValueError("no footer")
        stream.seek(size - TAIL_BYTES - length)
        footer = _Thrift(stream.read(length))
    try:
        return [_row_group(group) for group in footer.struct()[ROW_GROUPS]]
    except (KeyError, IndexError, TypeError, AttributeError, struct.error) as error:
        raise ValueError("damaged footer") from error


def _row_group(group: dict[int, Any]) -> RowGroup:
    return RowGroup(group[ROWS], [_column(chunk[COLUMN_METADATA]) for chunk in group[COLUMNS]])


def _column(stated: dict[int, Any]) -> Column:
    return Column(
        name=stated[PATH][0].decode(),
        uncompressed=stated[UNCOMPRESSED],
        compressed=stated[COMPRESSED],
        first_byte=stated.get(DICTIONARY_PAGE) or stated[DATA_PAGE],
    )


class _Thrift:
    """Decodes the compact protocol. Structures become dicts by field number."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        if depth > MOST_NESTED:
            raise ValueError("nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while header := self._byte():
            step, kind = header >> 4, header & 15
            number = number + step if step else self._signed()
            is_flag = kind in (TRUE, FALSE)  # the header holds the value
            fields[number] = kind == TRUE if is_flag else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in WHOLE_NUMBERS:
            return self._signed()
        if kind == BINARY:
            return self._take(self._unsigned())
        if kind in (LIST, SET):
            return self._list(depth)
        if kind == STRUCT:
            return self.struct(depth + 1)
        if kind in (TRUE, FALSE, BYTE):
            return self._byte()
        if kind == DOUBLE:
            return struct.unpack("<d", self._take(8))[0]
        raise ValueError(f"type {kind}")  # maps do not occur in footers

    def _list(self, depth: int) -> list[Any]:
        header = self._byte()
        count, kind = header >> 4, header & 15
        if count == 15:
            count = self._unsigned()
        if count > len(self._data) - self._position:  # every element has at least a byte
            raise ValueError("too many elements")
        return [self._value(kind, depth + 1) for _ in range(count)]

    def _byte(self) -> int:
        self._position += 1
        return self._data[self._position - 1]

    def _take(self, count: int) -> bytes:
        self._position += count
        if self._position > len(self._data):
            raise ValueError("too short")
        return self._data[self._position - count : self._position]

    def _unsigned(self) -> int:
        number = shift = 0
        while (byte := self._byte()) & 128:
            number |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise ValueError("number too long")
        return number | byte << shift

    def _signed(self) -> int:
        number = self._unsigned()
        return number >> 1 ^ -(number & 1)
