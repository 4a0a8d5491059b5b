"""Large files that are one stream, read by several workers through a plain copy."""

import csv
import gzip
import io
import lzma
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from data_prep.config import CorpusConfig
from data_prep.reading import plain_text
from data_prep.reading.documents import RawDocument, cut_whole, make_plain, read_documents
from data_prep.reading.plain_text import PlainText
from data_prep.reading.source_files import SourceFile
from data_prep.reading.sources import plan_pieces
from data_prep.reading.tally import Tally

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
    "": lambda data: data,
}


@pytest.fixture(autouse=True)
def small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_text, "FRAME_BYTES", 700)


def rows(draw: random.Random) -> list[list[str]]:
    """Rows with line breaks, quotation marks and commas inside cells."""
    marks = ["\n", '"', ",", " ", "a", "é", "\n\n"]
    texts = ["".join(draw.choices(marks, k=draw.randint(1, 300))) + "x" for _ in range(150)]
    return [["id", "text"], *([str(number), text] for number, text in enumerate(texts))]


def text_of(form: str) -> bytes:
    draw = random.Random(0)
    table = rows(draw)
    if form == "csv":
        sink = io.StringIO()
        csv.writer(sink, lineterminator="\n").writerows(table)
        return sink.getvalue().encode()
    flat = [[cell.replace("\n", " ") for cell in row] for row in table]
    if form == "tsv":
        return "".join("\t".join(row) + "\n" for row in flat).encode()
    return "".join(f"{text}\nsecond line\n\n" for _, text in flat).encode()


def read(file: SourceFile, piece_bytes: int) -> tuple[list[RawDocument], Tally, int]:
    config = CorpusConfig()
    tally = Tally()
    pieces = plan_pieces([file], cut_whole(config), piece_bytes)
    found = [
        document
        for piece in pieces
        for part in piece
        for document in read_documents(part, config, tally)
    ]
    return found, tally, len(pieces)


def with_plain(file: SourceFile, folder: Path) -> SourceFile:
    folder.mkdir()
    make_plain(file, folder)
    return replace(file, plain=PlainText.load(folder))


@pytest.mark.parametrize("form", ["txt", "csv", "tsv"])
@pytest.mark.parametrize("ending", list(COMPRESS))
@pytest.mark.parametrize("piece_bytes", [100, 1000, 5000])
def test_any_division_gives_the_documents_of_the_whole(
    tmp_path: Path, form: str, ending: str, piece_bytes: int
) -> None:
    path = tmp_path / f"x.{form}{ending}"
    path.write_bytes(COMPRESS[ending](text_of(form)))
    file = SourceFile(path, path.name)
    whole, counted, _ = read(file, 1 << 30)
    divided, tally, pieces = read(with_plain(file, tmp_path / "plain"), piece_bytes)
    assert len(whole) > 140 and pieces > 4
    assert divided == whole
    assert tally.as_json() == counted.as_json()


def test_a_truncated_archive_is_counted_once_and_keeps_the_same_documents(tmp_path: Path) -> None:
    path = tmp_path / "x.txt.gz"
    data = gzip.compress(text_of("txt"))
    path.write_bytes(data[: len(data) // 2])
    file = SourceFile(path, path.name)
    whole, counted, _ = read(file, 1 << 30)
    divided, tally, _ = read(with_plain(file, tmp_path / "plain"), 1000)
    assert divided == whole and len(whole) > 20
    assert (tally.broken_files, tally.notes) == (1, counted.notes)


def test_a_copy_is_read_from_any_place(tmp_path: Path) -> None:
    path = tmp_path / "x.txt.gz"
    text = text_of("txt")
    path.write_bytes(gzip.compress(text))
    plain = with_plain(SourceFile(path, path.name), tmp_path / "plain").plain
    assert plain is not None and plain.size == len(text)
    draw = random.Random(1)
    with plain.open() as stream:
        for _ in range(50):
            start, length = draw.randrange(len(text)), draw.randrange(3000)
            stream.seek(start)
            assert stream.read(length) == text[start : start + length]
