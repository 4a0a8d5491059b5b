"""Read the rows of Parquet files, in batches that bound memory.

A part has the row groups whose first byte is in its range, so parts depend on sizes only. A column
that expands too far when it is decompressed is not read. A longer cell than a line may be is cut.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from data_prep.errors import SesameError
from data_prep.reading.columns import (
    BATCH_ROWS,
    BOMB,
    DAMAGE,
    Row,
    choose_columns,
    is_bomb,
    number_rows,
)
from data_prep.reading.parquet_footer import RowGroup, read_row_groups
from data_prep.reading.source_files import Part
from data_prep.reading.tally import Tally

BUFFER_BYTES = 1 << 20
WORD_BYTES = 4096  # longest word in a list of words


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
        with (
            part.file.path.open("rb") as stream,
            pq.ParquetFile(stream, buffer_size=BUFFER_BYTES) as file,
        ):
            names = file.schema_arrow.names
            columns = choose_columns(part.file.name, names, text_field, others, tally)
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
                    yield from number_rows(batch, row, part.file.name, tally)
                    row += len(batch)
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
        is_bomb(column.compressed, column.uncompressed)
        for column in group.columns
        if column.name in columns
    )
