"""Read the rows of Parquet files, in batches that bound memory.

A part has the row groups whose first byte is in its range, so parts depend on sizes only.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from data_prep.errors import UsageError
from data_prep.reading.named_fields import list_names
from data_prep.reading.sources import Part
from data_prep.reading.tally import Tally

BATCH_ROWS = 256
BUFFER_BYTES = 1 << 20

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
            for number in range(file.num_row_groups):
                group = file.metadata.row_group(number)
                if not part.start <= _first_byte(group) < part.end:
                    row += group.num_rows
                    continue
                for batch in file.iter_batches(
                    BATCH_ROWS, row_groups=[number], columns=columns, use_threads=False
                ):
                    for values in _as_rows(batch):
                        yield row, values
                        row += 1
    except (pa.ArrowException, OSError) as error:
        # Count a file that cannot be opened once: only its first part counts it.
        if row or part.start == 0:
            tally.break_off("truncated or damaged file", part.file.name, row, "row")
        elif isinstance(error, OSError) and error.errno:
            raise


def _first_byte(group: Any) -> int:
    column = group.column(0)
    return int(column.dictionary_page_offset or column.data_page_offset)


def _as_rows(batch: pa.RecordBatch) -> list[Row]:
    columns = [_as_bytes(column).to_pylist() for column in batch.columns]
    return [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _as_bytes(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column.cast(pa.large_binary())
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        # Python's datetime has microseconds only.
        return column.cast(pa.timestamp("us", column.type.tz), safe=False)
    return column
