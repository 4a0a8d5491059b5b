"""An output is what its manifest says: sizes always, checksums once per version of a file."""

import os
from pathlib import Path
from typing import Any

import pytest

from pipeline.store import content
from pipeline.store.checkpoints import checkpoints
from pipeline.store.content import Checksums
from pipeline.store.outputs import MANIFEST, Output, Store, fingerprint
from pipeline.store.verify import Damaged, find_faults, refuse_damage, reopen, set_aside

REQUEST: dict[str, Any] = {
    "stage": "shard", "format": 1, "config": {}, "upstream": {}, "files_read": {},
}  # fmt: skip


@pytest.fixture
def output(tmp_path: Path) -> Output:
    made = Store(tmp_path).output("shard", fingerprint(REQUEST))
    made.begin(REQUEST)
    (made.path / "inner").mkdir()
    (made.path / "a.tar").write_bytes(b"first file")
    (made.path / "inner" / "b.tar").write_bytes(b"second")
    made.finish(REQUEST, {}, {})
    return made


def faults(output: Output, full: bool = False) -> list[str]:
    found = find_faults(output, Checksums(output.path.parents[1]), full)
    return [str(fault) for fault in found]


def test_an_untouched_output_has_no_faults(output: Output) -> None:
    assert faults(output) == [] and output.is_done
    refuse_damage(output, Checksums(output.path.parents[1]))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "inner/b.tar is missing"),
        (b"secon", "inner/b.tar has 5 bytes instead of 6"),
        (b"secnod", "inner/b.tar has other content"),
    ],
)
def test_every_difference_is_named(output: Output, content: bytes | None, says: str) -> None:
    path = output.path / "inner" / "b.tar"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert faults(output) == [says]
    with pytest.raises(Damaged, match=f"{says}.*sesame repair {output.reference}"):
        refuse_damage(output, Checksums(output.path.parents[1]))


def test_a_manifest_is_what_was_written(output: Output) -> None:
    """Its counts enter no fingerprint; run.json beside it holds its checksum."""
    path = output.path / MANIFEST
    path.write_text(path.read_text().replace('"counts": {}', '"counts": {"rows": 1}'))
    assert output.is_done
    assert faults(output) == [
        f"{MANIFEST} is damaged: it has other content than when it was written"
    ]
    (output.path / "run.json").unlink()  # as in outputs of earlier versions
    assert faults(output) == []


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"fingerprint": "1"}', "\x00\xff"])
def test_a_damaged_manifest_is_not_done(output: Output, text: str) -> None:
    (output.path / MANIFEST).write_text(text)
    assert not output.is_done and output.has_manifest
    assert faults(output) == [f"{MANIFEST} is damaged: it is not the manifest of this output"]
    assert [each.reference for each in Store(output.path.parents[1]).outputs("shard")] == [
        output.reference
    ]


def test_a_manifest_must_list_size_and_checksum_of_every_file(output: Output) -> None:
    path = output.path / MANIFEST
    path.write_text(path.read_text().replace("sha256", "sha257", 1))
    assert faults(output) == [f"{MANIFEST} is damaged: it is not the manifest of this output"]


def test_a_manifest_must_give_its_fingerprint_where_all_is_checked(tmp_path: Path) -> None:
    request = REQUEST | {"config": {"seed": 3}}
    made = Store(tmp_path).output("shard", fingerprint(request))
    made.begin(request)
    made.finish(request, {}, {})
    assert faults(made, full=True) == []
    path = made.path / MANIFEST
    path.write_text(path.read_text().replace('"seed": 3', '"seed": 2'))
    assert faults(made, full=True) == [
        f"{MANIFEST} is damaged: what it was made from does not give its fingerprint"
    ]


def test_a_checkpoint_is_set_aside_as_a_whole(tmp_path: Path) -> None:
    made = Store(tmp_path).output("pretrain", fingerprint(REQUEST))
    made.begin(REQUEST)
    for step in ("00000003", "00000006"):
        (made.path / "checkpoints" / step).mkdir(parents=True)
        for name in ("weights.safetensors", "state.json"):
            (made.path / "checkpoints" / step / name).write_text(f"{name} of {step}")
    made.finish(REQUEST, {}, {})
    (made.path / "checkpoints" / "00000003" / "state.json").write_text("state.json of 00000004")
    found = list(find_faults(made, Checksums(tmp_path), full=True))
    reopen(made, found)
    assert [each.name for each in checkpoints(made.path / "checkpoints")] == ["00000006"]
    assert (made.path / "checkpoints" / ".00000003.damaged" / "weights.safetensors").exists()


def test_the_manifest_of_another_output_is_damage(output: Output) -> None:
    other = Store(output.path.parents[1]).output("shard", "1" * 16)
    os.rename(output.path, other.path)
    assert not other.is_done and other.has_manifest


def test_no_version_of_a_file_is_hashed_twice(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def spy(path: Path) -> str:
        read.append(path.name)
        return "another checksum"

    monkeypatch.setattr(content, "checksum", spy)
    assert faults(output) == []  # `finish` has hashed them
    (output.path / "a.tar").write_bytes(b"first flie")
    known = Checksums(output.path.parents[1])
    for _ in range(2):
        assert len(list(find_faults(output, known))) == 1
    assert read == ["a.tar"]


def test_large_files_are_sampled_unless_asked_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the sampled blocks a change is seen only in full."""
    monkeypatch.setattr(content, "WHOLE_UP_TO", 1000)
    monkeypatch.setattr(content, "BLOCK", 10)
    made = Store(tmp_path).output("shard", fingerprint(REQUEST))
    made.begin(REQUEST)
    path = made.path / "large.tar"
    path.write_bytes(bytes(10_000))
    made.finish(REQUEST, {}, {})
    assert "sampled" in made.manifest()["files"]["large.tar"]
    changed = bytearray(10_000)
    changed[80] = 1
    path.write_bytes(bytes(changed))
    assert faults(made) == []
    assert faults(made, full=True) == ["large.tar has other content"]
    changed[0] = 1
    path.write_bytes(bytes(changed))
    assert faults(made) == ["large.tar has other content"]


def test_what_is_set_aside_is_never_replaced(tmp_path: Path) -> None:
    for text in ("one", "two", "three"):
        (tmp_path / "a.json").write_text(text)
        set_aside(tmp_path / "a.json")
    assert sorted(path.read_text() for path in tmp_path.iterdir()) == ["one", "three", "two"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}', '{"a": [1]}'])
def test_a_damaged_cache_is_made_anew(
    output: Output, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = output.path.parents[1] / ".cache" / "checksums.json"
    cache.write_text(text)
    assert faults(output) == []
    assert "checksums.json: is damaged; checksums are computed again" in capsys.readouterr().err
