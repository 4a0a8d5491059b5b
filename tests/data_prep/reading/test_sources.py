"""Files are found whatever way they are named, and every line is read exactly once."""

import bz2
import errno
import gzip
import lzma
import os
import socket
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.errors import SesameError, UsageError
from data_prep.reading import lines as reading
from data_prep.reading import zstd
from data_prep.reading.bzip2 import has_streams
from data_prep.reading.lines import read_part, split_lines
from data_prep.reading.source_files import Part, SourceFile
from data_prep.reading.sources import describe_unread, discover, plan_pieces, survey
from data_prep.reading.tally import Tally

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}


def names(paths: object) -> list[str]:
    return [file.name for file in discover(paths)]


def any_line(before: bytes, line: bytes) -> bool:
    return True


def after_blank(before: bytes, line: bytes) -> bool:
    return before != b"" and not before.strip()


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    for name in ("b.txt", "a/c.jsonl.zst", "a/d.csv", "dump.xml-p1p9.bz2", "README.md", ".x.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    return tmp_path


def test_folders_globs_and_files_give_names_below_their_root(corpus: Path) -> None:
    everything = ["a/c.jsonl.zst", "a/d.csv", "b.txt", "dump.xml-p1p9.bz2"]
    assert names(str(corpus)) == everything
    assert names([corpus]) == everything
    assert names(f"{corpus}/*") == everything
    assert names(f"{corpus}/**/*.csv") == ["a/d.csv"]
    assert names(corpus / "a" / "d.csv") == ["d.csv"]
    assert names([corpus / "b.txt", corpus]) == everything, "no file is read twice"


def test_names_stay_apart_when_two_roots_share_one(corpus: Path) -> None:
    (corpus / "a" / "b.txt").write_bytes(b"y")
    files = discover([corpus / "b.txt", corpus / "a" / "b.txt"])
    assert [(file.name, file.path.read_bytes()) for file in files] == [
        ("0/b.txt", b"x"),
        ("1/b.txt", b"y"),
    ]


def test_named_sources_come_before_their_files_names(corpus: Path) -> None:
    files = discover([], {"two": [str(corpus / "b.txt")], "one": str(corpus / "a")})
    assert [(file.name, file.source) for file in files] == [
        ("one/c.jsonl.zst", 0),
        ("one/d.csv", 0),
        ("two/b.txt", 1),
    ]
    with pytest.raises(UsageError, match=r"corpus\.sources\.two: b\.txt is also one/b\.txt"):
        discover([], {"one": str(corpus), "two": str(corpus / "b.txt")})
    with pytest.raises(UsageError, match=r"corpus\.sources\.one=.*no such file"):
        discover([], {"one": "nowhere"})


def test_every_file_of_a_folder_is_read_or_named_with_a_reason(corpus: Path) -> None:
    for name in ("e.ndjson", "f.NDJSON.gz", "g.json.gz", "h.feather", "scan.pdf", "a/page.html"):
        (corpus / name).write_bytes(b"x")
    (corpus / "other.xml").write_bytes(b"<feed><entry/></feed>")
    (corpus / ".git").mkdir()
    (corpus / ".git" / "i.txt").write_bytes(b"x")
    found = survey(str(corpus))
    formats = {file.name: file.format for file in found.files}
    assert formats["e.ndjson"] == formats["f.NDJSON.gz"] == "jsonl"
    assert (formats["g.json.gz"], formats["h.feather"]) == ("json", "arrow")
    assert found.unread == {
        "README.md": "unknown_ending",
        "scan.pdf": "unknown_ending",
        "a/page.html": "unknown_ending",
        "other.xml": "other_xml",
        ".x.txt": "hidden",
        ".git": "hidden",
    }
    there = {path.relative_to(corpus).as_posix() for path in corpus.rglob("*") if path.is_file()}
    assert formats.keys() | found.unread.keys() == there - {".git/i.txt"} | {".git"}
    assert survey(f"{corpus}/*").unread.keys() == found.unread.keys() - {".x.txt", ".git"}
    named = survey([], {"one": str(corpus)}).unread
    assert named["one/other.xml"] == "other_xml"
    said = "\n".join(describe_unread(found.unread, most=1))
    assert "3 files are not read: README.md and 2 more (the ending is unknown" in said


@pytest.mark.parametrize("kind", ["fifo", "socket", "device"])
def test_what_is_no_file_is_named_and_never_opened(corpus: Path, kind: str) -> None:
    path = corpus / "endless.txt"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(str(path))
    else:
        os.symlink("/dev/zero", path)
    for paths in (str(corpus), f"{corpus}/*"):
        assert survey(paths).unread["endless.txt"] == "not_a_file"
        assert "endless.txt" not in names(paths)
    with pytest.raises(UsageError, match=r"corpus\.paths=.*endless\.txt: this is a FIFO, socket"):
        discover(str(path))


def test_a_folder_that_cannot_be_read_is_refused(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("/a"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(UsageError, match=r"corpus\.paths: the folder .*/a cannot be read"):
        discover(str(corpus))


def test_a_linked_folder_is_followed_and_a_circle_ends(corpus: Path) -> None:
    os.symlink(corpus, corpus / "a" / "circle")
    os.symlink(corpus / "a", corpus / "link")
    assert names(str(corpus)).count("b.txt") == 1


@pytest.mark.parametrize("paths", [[], "missing.txt", "none-*.txt", "README.md"])
def test_what_cannot_be_read_is_bad_usage_that_names_the_key(corpus: Path, paths: object) -> None:
    given = paths if isinstance(paths, list) else str(corpus / str(paths))
    with pytest.raises(UsageError, match=r"corpus\.paths"):
        discover(given)


@pytest.mark.parametrize("ending", COMPRESS)
def test_compressed_files_read_like_plain_ones(tmp_path: Path, ending: str) -> None:
    data = b"".join(b"line %d\n" % number for number in range(50_000))
    path = tmp_path / f"x.txt{ending}"
    path.write_bytes(COMPRESS[ending](data[:1000]) + COMPRESS[ending](data[1000:]))
    tally = Tally()
    lines = list(read_part(Part(SourceFile(path, "x"), 0, path.stat().st_size), any_line, tally))
    assert b"".join(line for _, line in lines) == data
    if ending != ".bz2":  # whose later streams count from where they start in the file
        assert all(data.startswith(line, offset) for offset, line in lines[::997])
    assert tally.broken_files == 0


def write_zstandard(path: Path, line: bytes, window_log: int) -> Part:
    """A file of one raw block that declares a window, as zstd --ultra --long=31 does."""
    window = bytes([(window_log - 10) << 3])
    last_raw_block = (1 | len(line) << 3).to_bytes(3, "little")
    path.write_bytes(b"\x28\xb5\x2f\xfd\x00" + window + last_raw_block + line)
    return Part(SourceFile(path, path.name), 0, 1)


@pytest.mark.parametrize("window_log", [27, 28, 31])
def test_zstandard_files_may_have_any_window(tmp_path: Path, window_log: int) -> None:
    part = write_zstandard(tmp_path / "x.txt.zst", b"one line\n", window_log)
    tally = Tally()
    assert [line for _, line in read_part(part, any_line, tally)] == [b"one line\n"]
    assert tally.broken_files == 0


def test_a_window_that_memory_cannot_hold_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zstd, "WINDOW_BYTES", 1 << 27)
    part = write_zstandard(tmp_path / "x.txt.zst", b"one line\n", 31)
    with pytest.raises(SesameError, match=r"x\.txt\.zst .*memory.* corpus\.workers"):
        list(read_part(part, any_line, Tally()))


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz", ".zst"])
def test_a_truncated_archive_gives_what_came_before_the_cut(tmp_path: Path, ending: str) -> None:
    data = os.urandom(200_000).hex().encode()
    whole = COMPRESS[ending](data)
    path = tmp_path / f"x.txt{ending}"
    path.write_bytes(whole[: len(whole) * 3 // 4])
    part = Part(SourceFile(path, "x.txt"), 0, 1)
    tally = Tally()
    read = b"".join(line for _, line in read_part(part, any_line, tally))
    assert data.startswith(read)
    assert tally.broken_files == 1
    assert tally.notes[0][:2] == ("x.txt", f"byte {len(read)}")
    with pytest.raises(SesameError, match=r"x\.txt, byte \d+"):
        list(read_part(part, any_line, Tally(strict=True)))


def test_garbage_in_an_archive_is_counted(tmp_path: Path) -> None:
    for ending in (".gz", ".bz2", ".xz", ".zst"):
        path = tmp_path / f"x.txt{ending}"
        path.write_bytes(b"this is no archive at all")
        tally = Tally()
        assert list(read_part(Part(SourceFile(path, "x"), 0, 1), any_line, tally)) == []
        assert tally.broken_files == 1


def test_utf16_is_refused_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes("hello".encode("utf-16"))
    with pytest.raises(SesameError, match="iconv"):
        list(read_part(Part(SourceFile(path, "x.txt"), 0, 9), any_line, Tally()))


def test_a_byte_order_mark_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(b"\xef\xbb\xbfone\ntwo\n")
    lines = list(read_part(Part(SourceFile(path, "x"), 0, 12), any_line, Tally()))
    assert [line for _, line in lines] == [b"one\n", b"two\n"]


@given(st.lists(st.binary(max_size=30)))
def test_lines_do_not_depend_on_blocks(blocks: list[bytes]) -> None:
    data = b"".join(blocks)
    lines = list(split_lines(blocks))
    assert b"".join(line for _, line in lines) == data
    assert [line for _, line in lines] == [line for _, line in split_lines([data])]
    assert all(data[offset:].startswith(line) for offset, line in lines)
    assert all(line.count(b"\n") == line.endswith(b"\n") and line for _, line in lines)


@settings(max_examples=60)
@given(
    text=st.lists(st.sampled_from([b"word\n", b"\n", b" \r\n", b"longer line\n", b"x"])),
    piece_bytes=st.integers(1, 40),
    border=st.sampled_from([any_line, after_blank]),
)
def test_parts_hold_every_byte_once_and_never_cut_a_record(
    tmp_path_factory: pytest.TempPathFactory,
    text: list[bytes],
    piece_bytes: int,
    border: Callable[[bytes, bytes], bool],
) -> None:
    path = tmp_path_factory.mktemp("cut") / "x.txt"
    path.write_bytes(b"".join(text))
    pieces = plan_pieces([SourceFile(path, "x")], lambda file: False, piece_bytes)
    chunks = [
        [line for _, line in read_part(part, border, Tally())] for piece in pieces for part in piece
    ]
    assert b"".join(line for chunk in chunks for line in chunk) == path.read_bytes()
    before = [line for chunk in chunks for line in chunk]
    place = 0
    for chunk in chunks:
        if chunk and place:
            assert border(before[place - 1], chunk[0])
        place += len(chunk)


def in_streams(data: bytes, sizes: list[int]) -> bytes:
    """Data as pbzip2 writes it: cut anywhere, each stretch a stream."""
    edges = np.cumsum([0, *sizes]).clip(0, len(data)).tolist()
    return b"".join(bz2.compress(data[a:b]) for a, b in pairwise([*edges, len(data)]))


@settings(max_examples=60)
@given(
    text=st.lists(st.sampled_from([b"word\n", b"\n", b" \r\n", b"longer line\n", b"x"])),
    sizes=st.lists(st.integers(0, 30), max_size=8),
    piece_bytes=st.integers(1, 150),
    border=st.sampled_from([any_line, after_blank]),
)
def test_streams_of_a_bzip2_file_hold_every_record_once_however_cut(
    tmp_path_factory: pytest.TempPathFactory,
    text: list[bytes],
    sizes: list[int],
    piece_bytes: int,
    border: Callable[[bytes, bytes], bool],
) -> None:
    path = tmp_path_factory.mktemp("cut") / "x.txt.bz2"
    data = b"".join(text)
    path.write_bytes(in_streams(data, sizes))
    file = SourceFile(path, "x")
    pieces = plan_pieces([file], lambda file: False, piece_bytes)
    tally = Tally()
    chunks = [list(read_part(part, border, tally)) for piece in pieces for part in piece]
    assert b"".join(line for chunk in chunks for _, line in chunk) == data
    whole = list(read_part(Part(file, 0, path.stat().st_size), border, tally))
    assert [line for chunk in chunks for line in chunk] == whole, "offsets do not depend on cuts"
    before = b""
    for chunk in chunks:
        if chunk and before:
            assert border(before, chunk[0][1])
        before = chunk[-1][1] if chunk else before
    assert tally.broken_files == 0


def test_a_damaged_stream_is_lost_alone_and_counted_once(tmp_path: Path) -> None:
    streams = [bz2.compress(os.urandom(3000).hex().encode() + b"\n") for _ in range(6)]
    broken = bytearray(streams[2])
    broken[len(broken) // 2] ^= 0xFF
    path = tmp_path / "x.txt.bz2"
    path.write_bytes(b"".join([*streams[:2], broken, *streams[3:]]))
    for piece_bytes in (100, 4000, 1 << 20):
        tally = Tally()
        pieces = plan_pieces([SourceFile(path, "x")], lambda file: False, piece_bytes)
        read = [
            line for piece in pieces for part in piece for line in read_part(part, any_line, tally)
        ]
        assert tally.broken_files == 1
        assert tally.notes[0][1] == f"byte {len(streams[0]) + len(streams[1])}"
        assert [line for _, line in read] == [
            bz2.decompress(stream) for number, stream in enumerate(streams) if number != 2
        ]


def test_streams_are_told_from_a_single_one(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(bz2.compress(b"x" * 100))
    (tmp_path / "two").write_bytes(bz2.compress(b"x" * 100) + bz2.compress(b"y"))
    assert not has_streams(tmp_path / "one")
    assert has_streams(tmp_path / "two")


def test_small_files_share_a_piece_and_uncuttable_ones_stay_whole(tmp_path: Path) -> None:
    files = []
    for number, size in enumerate((3, 4, 0, 30, 5)):
        path = tmp_path / f"{number}.txt"
        path.write_bytes(b"x" * size)
        files.append(SourceFile(path, path.name))
    pieces = plan_pieces(files, lambda file: True, 20)
    assert [[part.file.name for part in piece] for piece in pieces] == [
        ["0.txt", "1.txt"],
        ["3.txt"],
        ["4.txt"],
    ]
    cut = plan_pieces(files, lambda file: False, 20)
    assert [(part.start, part.end) for piece in cut[1:3] for part in piece] == [(0, 20), (20, 30)]


def test_a_new_small_file_changes_few_pieces(tmp_path: Path) -> None:
    files = []
    for number in range(2000):
        path = tmp_path / f"{number:05d}.txt"
        path.write_bytes(b"x" * 10)
        files.append(SourceFile(path, path.name))
    old = [tuple(piece) for piece in plan_pieces(files[1:], lambda file: False, 400)]
    new = [tuple(piece) for piece in plan_pieces(files, lambda file: False, 400)]
    assert len(set(new) - set(old)) < 10 < len(new)


def test_an_endless_line_is_cut_to_keep_memory_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LONGEST_BYTES", 100)
    lines = list(split_lines([b"x" * 60] * 5))
    assert max(len(line) for _, line in lines) == 120
    assert sum(len(line) for _, line in lines) == 300


def test_records_of_different_streams_have_different_places(tmp_path: Path) -> None:
    """A stream's place and the place in its text were added up: sums of two streams were equal."""
    path = tmp_path / "x.txt.bz2"
    path.write_bytes(b"".join(bz2.compress(b"a line of text\n" * 500) for _ in range(20)))
    part = Part(SourceFile(path, "x.txt.bz2"), 0, path.stat().st_size)
    places = [place for place, _ in read_part(part, lambda before, line: True, Tally())]
    assert len(set(places)) == len(places) == 10_000
    assert places[:500] == list(range(0, 500 * 15, 15))
