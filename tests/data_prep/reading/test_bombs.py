"""Small files that would fill the memory are read in bounded blocks, or not at all."""

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from data_prep.config import CorpusConfig
from data_prep.errors import SesameError
from data_prep.reading import columns
from data_prep.reading.columns import BOMB
from data_prep.reading.documents import RawDocument, read_documents
from data_prep.reading.lines import BLOCK_BYTES, read_blocks
from data_prep.reading.parquet import read_first_column
from data_prep.reading.source_files import Part, SourceFile
from data_prep.reading.tally import Tally

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}


@pytest.mark.parametrize("ending", COMPRESS)
def test_a_bomb_is_decompressed_in_bounded_blocks(tmp_path: Path, ending: str) -> None:
    size = 48 << 20
    path = tmp_path / f"bomb.txt{ending}"
    path.write_bytes(COMPRESS[ending](b"\0" * size))
    assert path.stat().st_size < size / 500
    tally = Tally()
    lengths = [len(block) for block in read_blocks(SourceFile(path, path.name), tally)]
    assert sum(lengths) == size
    assert max(lengths) <= BLOCK_BYTES
    assert tally.broken_files == 0


def test_zstd_files_may_have_several_and_skippable_frames(tmp_path: Path) -> None:
    with_size = zstandard.ZstdCompressor().compress
    streamed = zstandard.ZstdCompressor().compressobj()
    note = b"\x50\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"abc"
    frames = [note, with_size(b"one\n"), with_size(b""), note,
              streamed.compress(b"two\n") + streamed.flush()]  # fmt: skip
    path = tmp_path / "x.txt.zst"
    path.write_bytes(b"".join(frames))
    tally = Tally()
    assert b"".join(read_blocks(SourceFile(path, "x"), tally)) == b"one\ntwo\n"
    assert tally.broken_files == 0


def read(path: Path, tally: Tally) -> list[RawDocument]:
    part = Part(SourceFile(path, path.name), 0, path.stat().st_size)
    return list(read_documents(part, CorpusConfig(), tally))


def test_a_parquet_column_that_expands_too_far_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    texts = pa.DictionaryArray.from_arrays(
        pa.array([0] * 300, pa.int32()), pa.array(["a" * (65 << 20)])
    )
    with pq.ParquetWriter(path, pa.schema({"text": texts.type}), compression="zstd",
                          dictionary_pagesize_limit=1 << 28) as writer:  # fmt: skip
        writer.write_table(pa.table({"text": texts}))
        writer.write_table(pa.table({"text": pa.array(["b"]).dictionary_encode()}))
    assert path.stat().st_size < 100_000
    tally = Tally()
    assert [document.text for document in read(path, tally)] == ["b"], "other row groups are read"
    assert tally.notes == [("x.parquet", "row 0", f"{BOMB}, what follows is lost")]
    with pytest.raises(SesameError, match="expands more than 200 times"):
        read_first_column(path, 301)


def test_a_long_parquet_cell_is_cut_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "LONGEST_BYTES", 100)
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"text": ["short", "x" * 250, None]}), path)
    tally = Tally()
    assert [document.text for document in read(path, tally)] == ["short", "x" * 100]
    assert tally.repaired == {"long_cell_cut": 1}
    assert tally.dropped == {"missing_text": 1}
