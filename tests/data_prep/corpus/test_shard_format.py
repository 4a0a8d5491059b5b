"""Shards are plain tars: written the same every time, read alike by us and everyone else."""

import json
import tarfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.corpus import shard_format as shards
from data_prep.corpus.shard_format import (
    Origin,
    StoredSection,
    index_path,
    parts,
    read_sections,
    tar_header,
    write_shard,
)
from data_prep.errors import SesameError


def rows(count: int, size: int = 300) -> Iterator[StoredSection]:
    for number in range(count):
        text = f"Sentence {number}.\n\nÅ second one{' word' * (number * 7 % size)}.\n".encode()
        origin = Origin(f"id {number}", "a/é.txt").encode()
        yield StoredSection(number // 2, number % 2, text, origin, 2, 9)


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / "train-00000.tar"
    write_shard(path, rows(50))
    return path


@pytest.mark.parametrize("most", [1, 3, 7, 1000])
def test_parts_of_a_large_corpus_are_larger_and_not_more(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "CUT_BYTES", 4_000)
    for tar in range(3):
        write_shard(tmp_path / f"train-{tar:05d}.tar", rows(50))
    cut = parts(tmp_path, "train")
    monkeypatch.setattr(shards, "MOST_PARTS", most)
    joined = parts(tmp_path, "train")
    assert len(joined) <= max(most, 3) and (joined == cut) == (most == 1000)
    for before, after in pairwise(joined):
        assert after.start == (before.end if after.path == before.path else 0)
    read = [list(read_sections(p.path, p.start, p.end)) for p in joined]
    assert [section for part in read for section in part] == [
        section for tar in sorted(tmp_path.glob("*.tar")) for section in read_sections(tar)
    ]


@given(st.text("abc-0.", min_size=1, max_size=100), st.integers(0, 8**11 - 1))
def test_headers_are_those_of_the_tar_format(name: str, size: int) -> None:
    info = tarfile.TarInfo.frombuf(tar_header(name, size), "utf-8", "strict")
    assert (info.name, info.size, info.mode, info.mtime) == (name, size, 0o644, 0)
    assert (info.uid, info.gid, info.uname, info.gname, info.isreg()) == (0, 0, "", "", True)


def test_tarfile_reads_the_same_sections(shard: Path) -> None:
    with tarfile.open(shard) as tar:
        members = [(info.name, tar.extractfile(info).read()) for info in tar]  # type: ignore[union-attr]
    sections = list(read_sections(shard))
    assert len(members) == 2 * len(sections) == 100
    for number, section in enumerate(sections):
        (text_name, text), (json_name, described) = members[2 * number : 2 * number + 2]
        key = f"{section.document:010d}-{section.section:05d}"
        assert (text_name, json_name) == (f"{key}.txt", f"{key}.json")
        assert json.loads(described) == {
            "document": number // 2,
            "section": number % 2,
            "id": f"id {number}",
            "source": "a/é.txt",
        }
        assert section.id == f"id {number}" and section.source == "a/é.txt"
        assert section.sentences == [line for line in text.decode().split("\n") if line]


def test_webdataset_reads_the_tars(shard: Path) -> None:
    import webdataset

    samples = list(webdataset.WebDataset(str(shard), shardshuffle=False, empty_check=False))
    sections = list(read_sections(shard))
    assert [sample["__key__"] for sample in samples] == [
        f"{section.document:010d}-{section.section:05d}" for section in sections
    ]
    assert [sample["txt"] for sample in samples] == [row.text for row in rows(50)]
    assert json.loads(samples[7]["json"])["id"] == sections[7].id


def test_parts_cover_each_section_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "CUT_BYTES", 5000)
    for number in range(2):
        write_shard(tmp_path / f"train-{number:05d}.tar", rows(40))
    write_shard(tmp_path / "heldout-00000.tar", rows(3))
    pieces = parts(tmp_path, "train")
    assert len(pieces) > 10
    read = [
        section for part in pieces for section in read_sections(part.path, part.start, part.end)
    ]
    whole = list(read_sections(tmp_path / "train-00000.tar"))
    assert read == whole + whole
    assert all(part.end - part.start < 5000 + 8000 for part in pieces)


def test_the_index_counts(shard: Path) -> None:
    index = json.loads(index_path(shard).read_text())
    assert index == {
        "bytes": shard.stat().st_size,
        "documents": 25,
        "sections": 50,
        "sentences": 100,
        "words": 450,
        "cuts": [0],
    }


def test_an_empty_shard_is_a_tar_too(tmp_path: Path) -> None:
    path = tmp_path / "heldout-00000.tar"
    write_shard(path, iter(()))
    with tarfile.open(path) as tar:
        assert tar.getmembers() == []
    assert list(read_sections(path)) == [] and parts(tmp_path, "heldout") == []


@settings(max_examples=30)
@given(cut=st.integers(1, 60_000))
def test_a_cut_tar_is_noticed(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("cut") / "train-00000.tar"
    write_shard(path, rows(50))
    data = path.read_bytes()
    path.write_bytes(data[: max(len(data) - cut, 0)])
    with pytest.raises(SesameError, match=r"train-00000\.tar"):
        parts(path.parent, "train")
    if cut > 1024:
        with pytest.raises(SesameError, match="damaged at"):
            list(read_sections(path))


def test_a_broken_header_is_noticed(shard: Path) -> None:
    data = bytearray(shard.read_bytes())
    data[257:262] = b"xxxxx"
    shard.write_bytes(data)
    with pytest.raises(SesameError, match="byte 0"):
        list(read_sections(shard))
