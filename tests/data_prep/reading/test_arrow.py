"""Arrow files and saved datasets."""

import json
import random
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from data_prep.config import CorpusConfig
from data_prep.errors import UsageError
from data_prep.reading.columns import BOMB
from data_prep.reading.documents import RawDocument, read_documents
from data_prep.reading.source_files import Part, SourceFile
from data_prep.reading.sources import survey
from data_prep.reading.tally import Tally

ROWS = 5_000


def table() -> pa.Table:
    kinds = pa.array(["note", "letter"] * (ROWS // 2)).dictionary_encode()
    texts = [f"Text number {number}" for number in range(ROWS)]
    return pa.table({"text": texts, "id": range(ROWS), "kind": kinds})


def write(path: Path, rows: pa.Table, form: str = "stream", compression: str | None = None) -> Path:
    open_writer = pa.ipc.new_stream if form == "stream" else pa.ipc.new_file
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with path.open("wb") as sink, open_writer(sink, rows.schema, options=options) as writer:
        writer.write_table(rows, max_chunksize=700)
    return path


def read(path: Path, tally: Tally, parts: int = 1, **keys: object) -> list[RawDocument]:
    file, size = SourceFile(path, path.name), path.stat().st_size
    config = CorpusConfig(**keys)  # type: ignore[arg-type]
    bounds = [size * number // parts for number in range(parts + 1)]
    return [
        document
        for start, end in pairwise(bounds)
        for document in read_documents(Part(file, start, end), config, tally)
    ]


@pytest.mark.parametrize("form", ["stream", "file"])
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("parts", [1, 5])
def test_every_row_is_read_once_by_any_number_of_parts(
    tmp_path: Path, form: str, compression: str | None, parts: int
) -> None:
    path = write(tmp_path / "x.arrow", table(), form, compression)
    tally = Tally()
    found = read(path, tally, parts, where={"kind": "note"})
    assert [each.id for each in found] == [str(number) for number in range(0, ROWS, 2)]
    assert found[7].text == "Text number 14"
    assert (tally.read, tally.kept, tally.broken_files) == (ROWS, ROWS // 2, 0)


def test_rows_without_an_id_are_numbered_through_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "x.arrow", table().select(["text"]))
    found = read(path, Tally(), 5)
    assert [each.id for each in found] == [f"x.arrow:{number}" for number in range(ROWS)]


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "x.arrow", table())
    with pytest.raises(UsageError, match=r"corpus\.text_field=body: .* found: text, id, kind"):
        read(path, Tally(), text_field="body")


def test_a_truncated_file_keeps_the_batches_before_the_damage(tmp_path: Path) -> None:
    path = write(tmp_path / "x.arrow", table())
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    tally = Tally()
    found = read(path, tally)
    assert 0 < len(found) < ROWS and len(found) % 700 == 0
    assert tally.broken_files == 1


def test_damaged_bytes_never_end_the_process(tmp_path: Path) -> None:
    whole = write(tmp_path / "x.arrow", table().slice(0, 900), compression="lz4").read_bytes()
    draw = random.Random(0)
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(draw.randrange(1, 4)):
            damaged[draw.randrange(len(whole))] = draw.randrange(256)
        (tmp_path / "y.arrow").write_bytes(damaged)
        tally = Tally()
        try:
            found = read(tmp_path / "y.arrow", tally)
        except UsageError:  # the name of the text column was damaged
            continue
        assert len(found) == tally.kept <= 900


def test_a_batch_that_expands_too_far_is_not_read(tmp_path: Path) -> None:
    large = pa.table({"text": ["a" * (70 << 20)]})
    path = write(tmp_path / "x.arrow", large, compression="zstd")
    assert path.stat().st_size < 100_000
    tally = Tally()
    assert read(path, tally) == []
    assert tally.notes == [("x.arrow", "row 0", f"{BOMB}, what follows is lost")]


def save_dataset(folder: Path, state: dict[str, object]) -> None:
    """Write the files that Hugging Face's `save_to_disk` writes."""
    folder.mkdir(parents=True)
    write(folder / "data-00000-of-00001.arrow", table())
    (folder / "dataset_info.json").write_text('{"features": {}}')
    listed = [{"filename": "data-00000-of-00001.arrow"}]
    (folder / "state.json").write_text(json.dumps({"_data_files": listed} | state))


def test_a_saved_dataset_is_read_by_its_state(tmp_path: Path) -> None:
    save_dataset(tmp_path / "dataset" / "train", {})
    write(tmp_path / "dataset" / "train" / "cache-0123.arrow", table())
    (tmp_path / "dataset" / "dataset_dict.json").write_text('{"splits": ["train"]}')
    found = survey(str(tmp_path / "dataset"))
    assert [file.name for file in found.files] == ["train/data-00000-of-00001.arrow"]
    assert found.unread == {
        "dataset_dict.json": "dataset_description",
        "train/dataset_info.json": "dataset_description",
        "train/state.json": "dataset_description",
        "train/cache-0123.arrow": "not_in_dataset",
    }


def test_a_selection_of_rows_is_refused_with_the_remedy(tmp_path: Path) -> None:
    save_dataset(tmp_path / "dataset", {"_indices_data_files": [{"filename": "indices.arrow"}]})
    with pytest.raises(UsageError, match="flatten_indices"):
        survey(str(tmp_path / "dataset"))
