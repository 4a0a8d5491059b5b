"""The columns of a table in Arrow's memory format as rows: what Parquet and Arrow files share.

Strings are returned as bytes, since files may hold invalid UTF-8. A longer cell than a line may be
is cut.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from data_prep.errors import UsageError
from data_prep.reading.lines import LONGEST_BYTES
from data_prep.reading.named_fields import list_names
from data_prep.reading.tally import Tally

BATCH_ROWS = 256
# A batch or page is decompressed as a whole, so a small file could fill the memory. Text expands 3
# to 10 times; more than EXPANDED_BYTES that expand more than MOST_EXPANSION times are refused.
MOST_EXPANSION = 200
EXPANDED_BYTES = 64 << 20
BOMB = f"a column expands more than {MOST_EXPANSION} times when decompressed"
# pyarrow reports damage by its own classes, by Python's, and where a size is absurd by MemoryError.
DAMAGE = (pa.ArrowException, OSError, MemoryError, ValueError, KeyError, IndexError, OverflowError)

Row = dict[str, Any]


def is_bomb(stored: int, expanded: int) -> bool:
    """Return True if so many bytes in a file would expand too far."""
    return expanded > EXPANDED_BYTES and expanded > MOST_EXPANSION * stored


def choose_columns(
    file_name: str, names: Sequence[str], text_field: str, others: Sequence[str], tally: Tally
) -> list[str]:
    """Return the text's column and those of `others` that the file has.

    Raises UsageError if there is no text column.
    """
    if text_field not in names:
        raise UsageError(
            f"corpus.text_field={text_field}: {file_name} has no such column; "
            f"found: {list_names(names)}; set corpus.text_field"
        )
    if not set(others) <= set(names):
        tally.fields.remember(names)
    return [text_field, *(name for name in dict.fromkeys(others) if name in names)]


def number_rows(
    batch: pa.RecordBatch, first: int, file_name: str, tally: Tally
) -> Iterator[tuple[int, Row]]:
    """Yield (row number, values by column); the first row of the batch has the number `first`."""
    columns = [_cells(_as_bytes(column)) for column in batch.columns]
    for number, row in enumerate(zip(*columns, strict=True), first):
        if any(map(_is_cut, row)):
            tally.repair_damaged("long_cell_cut", file_name, number, "row")
        yield number, dict(zip(batch.schema.names, row, strict=True))


def _cells(column: pa.Array) -> Iterable[Any]:
    """Return the values of a column; bytes are cut at LONGEST_BYTES."""
    if column.nbytes < LONGEST_BYTES or not pa.types.is_large_binary(column.type):
        cells: list[Any] = column.to_pylist()
        return cells
    # One at a time, since each may be large.
    buffers = (cell.as_buffer() for cell in column)
    return (None if buffer is None else buffer[:LONGEST_BYTES].to_pybytes() for buffer in buffers)


def _is_cut(value: Any) -> bool:
    return isinstance(value, bytes) and len(value) == LONGEST_BYTES


def _as_bytes(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.type in (pa.string(), pa.large_string(), pa.binary()):
        return column.cast(pa.large_binary())
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        # Python's datetime has microseconds only.
        return column.cast(pa.timestamp("us", column.type.tz), safe=False)
    return column
