"""Chunks come back as they were written; whatever is damaged is found before it is used."""

import io
import json
import os
import pickle
import tarfile
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from data_prep.errors import SesameError
from data_prep.examples.chunks import Chunk, ChunkStore, ChunkWriter, concatenate


def make_rows(rows: int, static: bool = True, dtype: str = "<u2", seed: int = 0) -> Chunk:
    """Packed rows of 1 to 3 short random examples."""
    rng = np.random.default_rng(seed)
    row_examples = offsets(rng.integers(1, 4, rows))
    lengths = rng.integers(3, 20, row_examples[-1])
    example_tokens = offsets(lengths)
    masks = {}
    if static:
        counts = rng.integers(0, 3, len(lengths))
        masks = {
            "target": rng.integers(0, np.repeat(lengths, counts)).astype("<u2"),
            "target_examples": offsets(counts),
            "input": rng.integers(0, 1000, counts.sum()).astype(dtype),
        }
    return Chunk(
        tokens=rng.integers(0, 1000, example_tokens[-1]).astype(dtype),
        row_examples=row_examples,
        example_tokens=example_tokens,
        second=(lengths // 2).astype("<u2"),
        label=rng.integers(-1, 2, len(lengths)).astype(np.int8),
        coin=rng.integers(0, 2, len(lengths)).astype(np.int8),
        documents=rng.integers(0, 100, (len(lengths), 2)).astype("<u4"),
        **masks,
    )


def with_flips(rows: Chunk, first: int, last: int) -> Chunk:
    """The same rows; tokens of the rows [first, last) may have word flips."""
    begin, end = rows.example_tokens[rows.row_examples[[first, last]]]
    flips = np.zeros(len(rows.tokens), np.uint8)
    flips[begin:end] = np.arange(end - begin) % 3 == 0
    return replace(rows, word_flips=flips)


def offsets(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def write(folder: Path, *parts: Chunk, shard_size: int = 60_000, vocab_size: int = 1000) -> None:
    folder.mkdir(exist_ok=True)
    static = parts[0].target is not None
    with ChunkWriter(
        folder, "train", shard_size=shard_size, chunk_rows=16, vocab_size=vocab_size, static=static
    ) as writer:
        for part in parts:
            writer.add(part)


def read_all(folder: Path) -> Chunk:
    store = ChunkStore(folder, "train")
    return concatenate([store.read(number) for number in range(store.chunks)])


def assert_same(left: Chunk, right: Chunk) -> None:
    assert left.columns().keys() == right.columns().keys()
    for name, array in left.columns().items():
        other = right.columns()[name]
        assert array.dtype == other.dtype, name
        np.testing.assert_array_equal(array, other, err_msg=name)


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize(("dtype", "vocab_size"), [("<u2", 65_536), ("<u4", 65_537)])
def test_rows_come_back_as_written(
    tmp_path: Path, static: bool, dtype: str, vocab_size: int
) -> None:
    rows = make_rows(100, static, dtype)
    write(tmp_path, rows, vocab_size=vocab_size)
    store = ChunkStore(tmp_path, "train")
    assert_same(read_all(tmp_path), rows)
    assert store.rows_per_chunk.tolist() == [16] * 6 + [4]
    assert store.first_row.tolist() == [0, 16, 32, 48, 64, 80, 96]
    assert (store.rows, store.examples, store.tokens) == (100, rows.examples, len(rows.tokens))
    assert store.static == static


@pytest.mark.parametrize("static", [True, False])
def test_word_flips_are_stored_where_they_are(tmp_path: Path, static: bool) -> None:
    rows = with_flips(make_rows(100, static), 20, 40)
    write(tmp_path, rows)
    store = ChunkStore(tmp_path, "train")
    present = [store.read(number).word_flips is not None for number in range(store.chunks)]
    assert present == [False, True, True, False, False, False, False]
    assert_same(read_all(tmp_path), rows)
    plain = tmp_path / "plain"
    write(plain, make_rows(100, static))
    assert sizes(tmp_path)[0] == sizes(plain)[0], "chunks without flips are as they were"


def sizes(folder: Path) -> list[int]:
    return [
        chunk["bytes"]
        for chunk in json.loads(index_of(folder / "train-00000.tar").read_text())["chunks"]
    ]


@pytest.mark.parametrize("cut", [1, 7, 16, 50])
def test_bytes_do_not_depend_on_how_rows_are_added(tmp_path: Path, cut: int) -> None:
    rows = with_flips(make_rows(100), 20, 40)
    write(tmp_path / "whole", rows)
    write(tmp_path / "cut", *[rows.between(i, min(i + cut, 100)) for i in range(0, 100, cut)])
    names = sorted(path.name for path in (tmp_path / "whole").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "cut").iterdir())
    for name in names:
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes()


def test_tars_are_rolled_at_their_size(tmp_path: Path) -> None:
    write(tmp_path, make_rows(200), shard_size=25_000)
    tars = sorted(tmp_path.glob("*.tar"))
    assert len(tars) > 2
    assert all(tar.stat().st_size <= 25_000 for tar in tars)
    assert [tar.name for tar in tars] == [f"train-{i:05d}.tar" for i in range(len(tars))]


def test_a_split_without_rows_is_a_split(tmp_path: Path) -> None:
    write(tmp_path, make_rows(0))
    store = ChunkStore(tmp_path, "train")
    assert (store.rows, store.chunks) == (0, 0)


def test_a_failure_leaves_no_file(tmp_path: Path) -> None:
    def fail() -> None:
        with ChunkWriter(
            tmp_path, "train", shard_size=10**9, chunk_rows=8, vocab_size=1000, static=True
        ) as writer:
            writer.add(make_rows(100))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_take_and_between_agree_with_single_rows() -> None:
    rows = with_flips(make_rows(40), 6, 8)
    chosen = np.array([7, 3, 39, 0, 3])
    assert_same(rows.take(chosen), concatenate([rows.between(i, i + 1) for i in chosen]))
    assert_same(rows.between(5, 9), rows.take(np.arange(5, 9)))
    assert_same(concatenate([rows.between(0, 13), rows.between(13, 40)]), rows)


def test_webdataset_reads_the_tars(tmp_path: Path) -> None:
    import webdataset

    rows = make_rows(100)
    write(tmp_path, rows)
    tars = [str(tar) for tar in sorted(tmp_path.glob("*.tar"))]
    samples = list(webdataset.WebDataset(tars, shardshuffle=False).decode())
    assert [sample["__key__"] for sample in samples] == [f"{i:08d}" for i in range(7)]
    tokens = np.concatenate([sample["tokens.npy"] for sample in samples])
    np.testing.assert_array_equal(tokens, rows.tokens)


def test_numpy_reads_the_members_without_pickle(tmp_path: Path) -> None:
    rows = make_rows(10)
    write(tmp_path, rows)
    with tarfile.open(tmp_path / "train-00000.tar") as tar:
        for name, array in rows.columns().items():
            member = tar.extractfile(f"00000000.{name}.npy")
            assert member is not None
            content = np.load(io.BytesIO(member.read()), allow_pickle=False)
            np.testing.assert_array_equal(content, array)


def change(path: Path, start: int, content: bytes) -> None:
    whole = bytearray(path.read_bytes())
    whole[start : start + len(content)] = content
    path.write_bytes(bytes(whole))


DAMAGES = {
    "cut in the middle": lambda tar: tar.write_bytes(tar.read_bytes()[:9000]),
    "cut at a chunk": lambda tar: tar.write_bytes(tar.read_bytes()[: second_chunk(tar)]),
    "zeroed": lambda tar: change(tar, second_chunk(tar), bytes(5000)),
    "one bit": lambda tar: change(
        tar,
        second_chunk(tar) + 700,
        bytes([tar.read_bytes()[second_chunk(tar) + 700] ^ 4]),
    ),
    "empty": lambda tar: tar.write_bytes(b""),
    "missing": lambda tar: tar.unlink(),
}


def second_chunk(tar: Path) -> int:
    offset = json.loads(index_of(tar).read_text())["chunks"][1]["offset"]
    assert isinstance(offset, int)
    return offset


def index_of(tar: Path) -> Path:
    return tar.with_name(f"{tar.name}.index.json")


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_tar_is_named(tmp_path: Path, damage: str) -> None:
    write(tmp_path, make_rows(200), shard_size=25_000)
    DAMAGES[damage](tmp_path / "train-00001.tar")
    with pytest.raises(SesameError, match=r"train-00001\.tar: (damaged: .*chunk \d|missing)"):
        read_all(tmp_path)


def test_a_tar_damaged_after_opening_is_named(tmp_path: Path) -> None:
    write(tmp_path, make_rows(30))
    store = ChunkStore(tmp_path, "train")
    tar = tmp_path / "train-00000.tar"
    tar.write_bytes(tar.read_bytes()[:-2000])
    with pytest.raises(SesameError, match=r"train-00000\.tar: damaged: chunk 1 "):
        store.read(1)
    store = pickle.loads(pickle.dumps(store))  # as a loader's process gets it: nothing is open
    tar.unlink()
    with pytest.raises(SesameError, match=r"train-00000\.tar: chunk 1 cannot be read"):
        store.read(1)


def test_the_tars_that_were_used_last_stay_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, make_rows(60), shard_size=1)  # one chunk per tar
    open_files = Path("/proc/self/fd")
    before, real_open = len(list(open_files.iterdir())), os.open
    opened: list[str] = []

    def count_open(path: Path, flags: int) -> int:
        opened.append(path.name)
        return real_open(path, flags)

    monkeypatch.setattr("data_prep.examples.chunks.OPEN_TARS", 2)
    monkeypatch.setattr("data_prep.examples.chunks.os.open", count_open)
    store = ChunkStore(tmp_path, "train")
    first = [store.read(number).tokens.tolist() for number in (0, 1, 0, 2, 0, 2)]
    assert opened == ["train-00000.tar", "train-00001.tar", "train-00002.tar"]
    assert store.read(1).tokens.tolist() == first[1]  # its tar was closed for that of chunk 2
    assert opened[3:] == ["train-00001.tar"]
    assert len(list(open_files.iterdir())) == before + 2
    del store
    assert len(list(open_files.iterdir())) == before


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"{}", b"\xff\xfe", b'{"chunks": 3}', None],
    ids=["empty", "cut", "list", "nothing", "not text", "no chunks", "missing"],
)
def test_a_damaged_index_is_named(tmp_path: Path, content: bytes | None) -> None:
    write(tmp_path, make_rows(20))
    index = tmp_path / "train-00000.tar.index.json"
    if content is None:
        index.unlink()
    else:
        index.write_bytes(content)
    with pytest.raises(SesameError, match=r"train-00000\.tar\.index\.json: (damaged|missing)"):
        ChunkStore(tmp_path, "train")


@pytest.mark.parametrize("fact", ["rows", "examples", "tokens", "offset", "bytes", "crc32"])
@pytest.mark.parametrize("value", [-1, 10**12, "7", None])
def test_an_index_with_a_wrong_number_is_refused(
    tmp_path: Path, fact: str, value: int | str | None
) -> None:
    write(tmp_path, make_rows(40))
    path = tmp_path / "train-00000.tar.index.json"
    index = json.loads(path.read_text())
    index["chunks"][1][fact] = value
    path.write_text(json.dumps(index))
    with pytest.raises(SesameError, match=r"train-00000\.tar.*chunk [12]"):
        read_all(tmp_path)


def test_a_missing_last_pair_of_files_is_noticed(tmp_path: Path) -> None:
    write(tmp_path, make_rows(200), shard_size=25_000)
    last = sorted(tmp_path.glob("*.tar"))[-1]
    last.unlink()
    index_of(last).unlink()
    with pytest.raises(SesameError, match=rf"{last.name}\.index\.json: missing"):
        ChunkStore(tmp_path, "train")


def forge(folder: Path, members: dict[str, bytes]) -> None:
    """Write a tar of one chunk with these members and an index that vouches for it."""
    write(folder, make_rows(16))
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        size = tar.offset
    content = stream.getvalue()[:size]
    path = folder / "train-00000.tar"
    path.write_bytes(content + bytes(1024))
    index = json.loads(index_of(path).read_text())
    index["chunks"][0] |= {"bytes": size, "crc32": zlib.crc32(content)}
    index_of(path).write_text(json.dumps(index))


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("name", "change_member"),
    [
        ("an unknown member", lambda members: members | {"00000000.extra.npy": b"x"}),
        ("a missing column", lambda members: without(members, "label")),
        ("another order", lambda members: dict(reversed(members.items()))),
        ("a name outside", lambda members: {"../" + name: body for name, body in members.items()}),
        ("objects", lambda members: members | column("tokens", np.array([{}], dtype=object))),
        ("floats", lambda members: members | column("tokens", np.zeros(5))),
        ("a wider type", lambda members: members | column("label", np.zeros(5, np.int64))),
        ("another shape", lambda members: members | column("label", np.zeros((5, 2), np.int8))),
        ("another length", lambda members: members | column("label", np.zeros(5, np.int8))),
        ("no array", lambda members: members | {"00000000.label.npy": b"pickle"}),
        ("foreign ids", lambda members: members | foreign_ids(members)),
        ("other flips", lambda members: members | column("word_flips", np.zeros(3, np.uint8))),
        ("offsets that fall", lambda members: members | falling_offsets(members)),
    ],
)
def test_forged_chunks_are_refused(tmp_path: Path, name: str, change_member) -> None:  # type: ignore[no-untyped-def]
    rows = make_rows(16)
    members = {f"00000000.{column}.npy": npy(array) for column, array in rows.columns().items()}
    forge(tmp_path, members)
    assert_same(read_all(tmp_path), rows)
    forge(tmp_path, change_member(members))
    with pytest.raises(SesameError, match=r"train-00000\.tar: damaged: chunk 0 "):
        read_all(tmp_path)


def column(name: str, array: np.ndarray) -> dict[str, bytes]:
    return {f"00000000.{name}.npy": npy(array)}


def without(members: dict[str, bytes], name: str) -> dict[str, bytes]:
    return {key: body for key, body in members.items() if key != f"00000000.{name}.npy"}


def foreign_ids(members: dict[str, bytes]) -> dict[str, bytes]:
    array = np.load(io.BytesIO(members["00000000.tokens.npy"]))
    array[3] = 1000
    return column("tokens", array)


def falling_offsets(members: dict[str, bytes]) -> dict[str, bytes]:
    array = np.load(io.BytesIO(members["00000000.example_tokens.npy"]))
    array[1], array[2] = array[2], array[1]
    return column("example_tokens", array)


def test_unsound_rows_are_not_written(tmp_path: Path) -> None:
    rows = make_rows(16)
    assert rows.target is not None
    for broken in (
        replace(rows, second=rows.second + np.uint16(99)),
        replace(rows, target=rows.target + np.uint16(99)),
        replace(rows, tokens=rows.tokens.astype(np.int64)),
        replace(rows, input=None),
    ):
        with pytest.raises(AssertionError):
            write(tmp_path, broken)


def test_the_digest_changes_with_the_rows(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        write(tmp_path / name, make_rows(50, seed=seed))
    digests = [ChunkStore(tmp_path / name, "train").digest for name in "abc"]
    assert digests[0] == digests[1] != digests[2]
