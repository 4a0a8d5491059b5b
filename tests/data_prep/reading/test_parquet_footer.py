"""The footer of a Parquet file: the same sizes and places as pyarrow's, and no crash."""

from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_prep.config import CorpusConfig
from data_prep.errors import UsageError
from data_prep.reading.documents import read_documents
from data_prep.reading.parquet_footer import read_row_groups
from data_prep.reading.source_files import Part, SourceFile
from data_prep.reading.tally import Tally


@pytest.mark.parametrize("compression", ["none", "zstd", "snappy"])
@pytest.mark.parametrize("use_dictionary", [True, False])
def test_sizes_and_places_are_those_that_pyarrow_reads(
    tmp_path: Path, compression: str, use_dictionary: bool
) -> None:
    path = tmp_path / "x.parquet"
    columns = {
        "text": [f"text {number}" for number in range(3000)],
        "id": list(range(3000)),
        "tags": [["a", "b"], None, []] * 1000,
        "score": [0.5, None] * 1500,
        "flag": [True, False, None] * 1000,
    }
    pq.write_table(
        pa.table(columns), path, row_group_size=170, compression=compression,
        use_dictionary=use_dictionary, write_page_index=True,
    )  # fmt: skip
    theirs = pq.ParquetFile(path).metadata
    ours = read_row_groups(path)
    assert len(ours) == theirs.num_row_groups == 18
    for number, group in enumerate(ours):
        expected = theirs.row_group(number)
        assert group.rows == expected.num_rows
        for place, column in enumerate(group.columns):
            chunk = expected.column(place)
            assert column.name == chunk.path_in_schema.split(".")[0]
            assert column.uncompressed == chunk.total_uncompressed_size
            assert column.compressed == chunk.total_compressed_size
            assert column.first_byte == (chunk.dictionary_page_offset or chunk.data_page_offset)


def test_no_flipped_byte_of_a_footer_ends_the_process(tmp_path: Path) -> None:
    """pyarrow's own description of a damaged column calls abort()."""
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"text": ["a", "b", None]}), path)
    whole = path.read_bytes()
    footer = int.from_bytes(whole[-8:-4], "little") + 8
    for place in range(len(whole) - footer, len(whole)):
        for bit in (1, 4, 128):
            damaged = bytearray(whole)
            damaged[place] ^= bit
            path.write_bytes(damaged)
            part = Part(SourceFile(path, path.name), 0, len(whole))
            with suppress(UsageError):  # the name of the column was hit
                list(read_documents(part, CorpusConfig(), Tally()))
