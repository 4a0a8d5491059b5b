"""Read the rows of Parquet files, in batches that bound memory.

A part has the row groups whose first byte is in its range, so parts depend on sizes only. A column
that expands too far when it is decompressed is not read. A longer cell than a line may be is cut.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from data_prep.errors import SesameError, UsageError
from data_prep.reading.lines import LONGEST_BYTES
from data_prep.reading.named_fields import list_names
from data_prep.reading.parquet_footer import RowGroup, read_row_groups
from data_prep.reading.sources import Part
from data_prep.reading.tally import Tally

BATCH_ROWS = 256
BUFFER_BYTES = 1 << 20
# A page is decompressed as a whole, so a small file could fill the memory. Text expands 3 to 10
# times; larger columns than EXPANDED_BYTES that expand more than MOST_EXPANSION times are refused.
MOST_EXPANSION = 200
EXPANDED_BYTES = 64 << 20
BOMB = f"a column expands more than {MOST_EXPANSION} times when decompressed"
WORD_BYTES = 4096  # longest word in a list of words
# pyarrow reports damage by its own classes, by Python's, and where a size is absurd by MemoryError.
DAMAGE = (pa.ArrowException, OSError, MemoryError, ValueError, KeyError, IndexError, OverflowError)

Row = dict[str, Any]


def read_rows(
    part: Part, text_field: str, others: Sequence[str], tally: Tally
) -> Iterator[tuple[int, Row]]:
    """Yield (row number in the file, values by column) for the rows of a part.

    The columns are the text and those of `others` that the file has. Strings are returned as
    bytes, since files may hold invalid UTF-8. Damage is counted in `tally`. Raises UsageError if
    there is no text column.
    """
    row = 0
    try:
        with pq.ParquetFile(part.file.path, buffer_size=BUFFER_BYTES) as file:
            names = file.schema_arrow.names
            if text_field not in names:
                raise UsageError(
                    f"corpus.text_field={text_field}: {part.file.name} has no such column; "
                    f"found: {list_names(names)}; set corpus.text_field"
                )
            if not set(others) <= set(names):
                tally.fields.remember(names)
            columns = [text_field, *(name for name in dict.fromkeys(others) if name in names)]
            for number, group in enumerate(read_row_groups(part.file.path)):
                if not part.start <= group.columns[0].first_byte < part.end:
                    row += group.rows
                    continue
                if _is_bomb(group, columns):
                    tally.break_off(BOMB, part.file.name, row, "row")
                    row += group.rows
                    continue
                for batch in file.iter_batches(
                    BATCH_ROWS, row_groups=[number], columns=columns, use_threads=False
                ):
                    for values in _as_rows(batch):
                        if any(map(_is_cut, values.values())):
                            tally.repair_damaged("long_cell_cut", part.file.name, row, "row")
                        yield row, values
                        row += 1
    except DAMAGE as error:
        # Count a file that cannot be opened once: only its first part counts it.
        if row or part.start == 0:
            tally.break_off("truncated or damaged file", part.file.name, row, "row")
        elif isinstance(error, OSError) and error.errno:
            raise


def read_first_column(path: Path, count: int) -> list[Any]:
    """Return the `count` words in the first column of a file.

    Raises SesameError if the file is damaged, has another number of rows, or lists longer words
    than WORD_BYTES.
    """
    words: list[Any] = []
    try:
        with pq.ParquetFile(path, buffer_size=BUFFER_BYTES) as file:
            column = file.schema_arrow.names[0]
            groups = read_row_groups(path)
            rows = sum(group.rows for group in groups)
            if rows == count and any(_is_bomb(group, [column]) for group in groups):
                raise SesameError(f"{path}: {BOMB}; write it again")
            if rows == count:
                for batch in file.iter_batches(BATCH_ROWS, columns=[column], use_threads=False):
                    if batch.nbytes > len(batch) * WORD_BYTES:
                        raise SesameError(f"{path}: its words are longer than {WORD_BYTES} bytes")
                    words += batch.column(0).to_pylist()
    except DAMAGE as error:
        raise SesameError(f"{path}: damaged, or not a Parquet file; download it again") from error
    if len(words) != count:
        raise SesameError(
            f"{path}: lists {rows:,} words, but there are {count:,} vectors; they do not belong "
            "together"
        )
    return words


def _is_bomb(group: RowGroup, columns: Sequence[str]) -> bool:
    """Return True if one of the columns expands too far, by what the file states about itself."""
    return any(
        column.uncompressed > EXPANDED_BYTES
        and column.uncompressed > MOST_EXPANSION * column.compressed
        for column in group.columns
        if column.name in columns
    )


def _as_rows(batch: pa.RecordBatch) -> Iterator[Row]:
    columns = [_cells(_as_bytes(column)) for column in batch.columns]
    for row in zip(*columns, strict=True):
        yield dict(zip(batch.schema.names, row, strict=True))


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
