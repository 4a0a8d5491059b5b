"""Read the rows of Arrow files: `.arrow`, `.feather`, and the files of a saved dataset.

A part has the batches whose message starts in its range.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from data_prep.reading.arrow_messages import read_batches, read_schema
from data_prep.reading.columns import (
    BATCH_ROWS,
    BOMB,
    DAMAGE,
    Row,
    choose_columns,
    is_bomb,
    number_rows,
)
from data_prep.reading.source_files import Part, SourceFile
from data_prep.reading.tally import Tally


def _open(file: SourceFile) -> pa.NativeFile:
    """Map a local file, so that batches which are skipped are not read."""
    if isinstance(file.path, Path):
        return pa.memory_map(str(file.path))
    return pa.PythonFile(file.path.open(), "r")


def read_rows(
    part: Part, text_field: str, others: Sequence[str], tally: Tally
) -> Iterator[tuple[int, Row]]:
    """Yield (row number in the file, values by column) for the rows of a part.

    The columns are the text and those of `others` that the file has; strings are bytes. Damage is
    counted in `tally`. Raises UsageError if there is no text column.
    """
    row = 0
    is_inside = part.start == 0  # one part counts the damage: the one that it is in
    try:
        with _open(part.file) as source:
            schema = read_schema(source)
            names = pa.ipc.read_schema(schema).names
            columns = choose_columns(part.file.name, names, text_field, others, tally)
            for batch in read_batches(source, schema):
                is_inside = part.start <= batch.place < part.end
                if is_inside and is_bomb(batch.stored, batch.expanded):
                    tally.break_off(BOMB, part.file.name, row, "row")
                elif is_inside:
                    table = batch.decode().select(columns)
                    for first in range(0, len(table), BATCH_ROWS):
                        rows = table.slice(first, BATCH_ROWS)
                        yield from number_rows(rows, row + first, part.file.name, tally)
                row += batch.rows
    except (EOFError, *DAMAGE) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        if is_inside:
            tally.break_off("truncated or damaged file", part.file.name, row, "row")
