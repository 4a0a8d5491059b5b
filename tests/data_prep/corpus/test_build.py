"""The stage as a whole: same bytes on any number of workers and after a kill; counters balance."""

import csv
import gzip
import json
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.corpus import build, clean, write
from data_prep.corpus.build import make_shards
from data_prep.corpus.cache import PieceCache
from data_prep.corpus.clean_files import cut_sections
from data_prep.corpus.placement import heldout_sections
from data_prep.errors import SesameError
from data_prep.files import sha256
from data_prep.reading.source_files import Part
from data_prep.reading.sources import discover
from pipeline.config.schema import Config
from pipeline.stages.shard import Shard
from pipeline.workflow.stage import Work
from tests.data_prep.small_shards import (
    PIECE_BYTES,
    config_for,
    digests,
    document,
    everything,
    kill_at_rename,
    sections,
    shard,
    write_documents,
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every format; some repeated, short and damaged documents."""
    rng = random.Random(7)
    root = tmp_path_factory.mktemp("corpus")
    documents = [document(rng) for _ in range(300)]
    lines = [
        json.dumps({"id": f"j{number}", "text": text}) for number, text in enumerate(documents)
    ]
    lines[10] = '{"text": "cut'
    lines[20] = json.dumps({"id": "x", "body": "no text here"})
    lines[30] = json.dumps(lines[31])
    (root / "a.jsonl").write_text("\n".join(lines) + "\n")
    blocks = [text.replace("\n\n", "\n") for text in documents[:50]] + ["short"]
    blocks += [document(rng).replace("\n\n", "\n") for _ in range(100)]
    (root / "b.txt").write_bytes(
        "\r\n\r\n".join(blocks).encode() + b"\n\nBad \xff bytes in here, sir."
    )
    with gzip.open(root / "c.csv.gz", "wt", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(["text", "label"])
        table.writerows([document(rng), number % 2] for number in range(60))
    return root


@pytest.fixture(scope="module")
def reference(
    corpus: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("reference")
    return out, shard(out, corpus, shard_size=100_000)


def test_counters_balance(reference: tuple[Path, dict[str, Any]]) -> None:
    out, counts = reference
    documents = counts["documents"]
    assert documents["read"] == documents["kept"] + sum(documents["dropped"].values())
    assert documents["read"] == 300 + 152 + 60
    assert documents["dropped"] == {
        "duplicate": 1,
        "malformed_json": 1,
        "min_characters": 1,
        "missing_text": 1,
    }
    assert documents["repaired"] == {
        "double_escaped_json": 1,
        "invalid_utf8": 1,
        "line_breaks": 150,
    }
    written = everything(out)
    assert [section.document for section in written] == list(range(documents["kept"]))
    assert sum(counts["sections"].values()) == len(written)
    assert sum(counts["sentences"].values()) == sum(len(s.sentences) for s in written)
    assert sum(counts["words"].values()) == sum(
        len(x.split()) for s in written for x in s.sentences
    )
    assert counts["shards"]["train"] == len(list(out.glob("train-*.tar"))) > 1
    histogram = json.loads((out / "statistics.json").read_text())["document_words"]["documents"]
    assert sum(histogram) == documents["kept"]


def test_documents_come_in_corpus_order_and_the_first_of_equals_survives(
    reference: tuple[Path, dict[str, Any]],
) -> None:
    written = everything(reference[0])
    assert [section.source for section in written] == sorted(section.source for section in written)
    kept = {section.id for section in written if section.source == "a.jsonl"}
    assert "j30" not in kept and "j31" in kept, "line 30 is line 31, escaped twice, so it is first"
    identities = [section.id for section in written]
    assert identities.count("j31") == 1


def test_outputs_hold_one_hidden_file_and_shards_are_bounded(
    reference: tuple[Path, dict[str, Any]],
) -> None:
    out, counts = reference
    hidden = [path.name for path in out.rglob("*") if path.name.startswith(".")]
    assert hidden == [".dropped.json"]
    assert all(path.stat().st_size <= 100_000 for path in out.glob("*.tar"))
    assert str(out) not in json.dumps(counts)


@pytest.mark.parametrize("workers", [2, 5])
def test_bytes_do_not_depend_on_workers(
    corpus: Path, reference: tuple[Path, dict[str, Any]], tmp_path: Path, workers: int
) -> None:
    counts = shard(tmp_path, corpus, shard_size=100_000, workers=workers)
    assert digests(tmp_path) == digests(reference[0])
    assert counts == reference[1]


def test_bytes_do_not_depend_on_how_files_are_cut(
    corpus: Path, reference: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    config = config_for(corpus, shard_size=100_000)
    for piece_bytes in (1500, 10_000_000):
        out = tmp_path / str(piece_bytes)
        out.mkdir()
        assert make_shards(config, out, piece_bytes) == reference[1]
        assert digests(out) == digests(reference[0])


def kill(corpus: Path, out: Path, renames: int) -> int:
    return kill_at_rename(out, renames, {"paths": str(corpus), "shard_size": 100_000})


def test_a_killed_stage_ends_up_with_the_same_bytes(
    corpus: Path, reference: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    # Each launch is killed at its n-th rename: while cleaning, writing, moving and at the very end.
    for renames in (8, 15, 15, 20):
        assert kill(corpus, tmp_path, renames) == -signal.SIGKILL
    counts = shard(tmp_path, corpus, shard_size=100_000)
    assert digests(tmp_path) == digests(reference[0])
    assert counts == reference[1]


PASSES = {"clean_unit": clean, "select_documents": build, "write_unit": write}


@pytest.mark.parametrize("broken", list(PASSES))
def test_finished_pieces_are_not_made_again(
    corpus: Path,
    reference: tuple[Path, dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    broken: str,
) -> None:
    order = list(PASSES)
    made: Counter[str] = Counter()

    def counting(name: str, fail_after: int | None) -> Callable[..., None]:
        original = getattr(PASSES[name], name)

        def make(*arguments: Any, **named: Any) -> None:
            if made[name] == fail_after:
                raise KeyboardInterrupt
            made[name] += 1
            original(*arguments, **named)

        return make

    with monkeypatch.context() as patch:
        for name in order:
            last = 0 if name == "select_documents" else 2
            patch.setattr(PASSES[name], name, counting(name, last if name == broken else None))
        with pytest.raises(KeyboardInterrupt):
            shard(tmp_path, corpus, shard_size=100_000)
    before = Counter(made)
    with monkeypatch.context() as patch:
        for name in order:
            patch.setattr(PASSES[name], name, counting(name, None))
        shard(tmp_path, corpus, shard_size=100_000)
    assert digests(tmp_path) == digests(reference[0])
    pieces = {"clean_unit": made["clean_unit"], "select_documents": 1}
    pieces["write_unit"] = len(list(tmp_path.glob("*.tar")))
    assert dict(made) == pieces
    assert all(made[name] == before[name] for name in order[: order.index(broken)])


def test_strict_also_stops_at_damage_found_by_an_earlier_run(corpus: Path, tmp_path: Path) -> None:
    kill(corpus, tmp_path, 8)  # some pieces clean, the damaged first one among them
    with pytest.raises(SesameError, match=r"byte \d+: (malformed_json|invalid_utf8)"):
        shard(tmp_path, corpus, shard_size=100_000, strict=True)
    kill(corpus, tmp_path, 20)  # joined
    with pytest.raises(SesameError, match=r"a\.jsonl, byte \d+: malformed_json"):
        shard(tmp_path, corpus, shard_size=100_000, strict=True)


def cache_of(root: Path, corpus: Path, most_bytes: int = 1 << 30) -> PieceCache:
    checksums = {file.name: sha256(file.path) for file in discover(str(corpus))}
    return PieceCache(root, checksums, version=1, most_bytes=most_bytes)


def test_a_grown_corpus_cleans_only_what_is_new(
    corpus: Path,
    reference: tuple[Path, dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cleaned: list[list[Part]] = []
    original = clean.clean_unit

    def remember(parts: list[Part], *others: Any) -> None:
        cleaned.append(parts)
        original(parts, *others)

    monkeypatch.setattr(clean, "clean_unit", remember)

    def run(name: str, **values: Any) -> int:
        cleaned.clear()
        (tmp_path / name).mkdir()
        cache = cache_of(tmp_path / "cache", grown, values.pop("most_bytes", 1 << 30))
        config = config_for(grown, shard_size=100_000, **values)
        make_shards(config, tmp_path / name, PIECE_BYTES, cache)
        return len(cleaned)

    grown = tmp_path / "corpus"
    shutil.copytree(corpus, grown)
    pieces = run("first")
    assert pieces > 10 and digests(tmp_path / "first") == digests(reference[0])
    assert run("again") == 0 and digests(tmp_path / "again") == digests(reference[0])
    assert run("other", temperature=1.0, deduplicate=False) == 0
    assert run("stricter", min_characters=30) == pieces
    rng = random.Random(12)
    write_documents(grown / "d.jsonl", [document(rng) for _ in range(5)])
    assert run("grown") <= 2
    make_shards(config_for(grown, shard_size=100_000), tmp_path / "first", PIECE_BYTES)
    assert digests(tmp_path / "grown") == digests(tmp_path / "first")
    (grown / "a.jsonl").write_text((grown / "a.jsonl").read_text().replace("river", "brook"))
    assert 0 < run("changed") < pieces
    assert run("bounded", most_bytes=60_000) == 0
    left = sum(path.stat().st_size for path in (tmp_path / "cache").rglob("*") if path.is_file())
    assert 0 < left <= 60_000
    assert 0 < run("after") < pieces


def test_smaller_fractions_lie_inside_larger(tmp_path: Path, corpus: Path) -> None:
    kept: list[set[str]] = []
    for fraction in (0.1, 0.4, 0.8, 1.0):
        counts = shard(tmp_path / str(fraction), corpus, fraction=fraction)
        assert abs(counts["documents"]["kept"] / 508 - fraction) < 0.1
        assert fraction == 1 or counts["documents"]["dropped"]["fraction"] > 0
        kept.append({section.id for section in everything(tmp_path / str(fraction))})
    assert kept[0] < kept[1] < kept[2] < kept[3]


@given(st.integers(0, 10_000_000))
def test_the_share_held_out(sections: int) -> None:
    held = heldout_sections(sections)
    assert held <= max(sections * 0.1, 1)
    if sections < 2:
        assert held == 0
    elif sections < 500:
        assert held == max(sections // 10, 1)
    else:
        assert held == max(50, round(sections * 0.005))


def test_held_out_sections_stay_so_when_the_corpus_grows(tmp_path: Path) -> None:
    rng = random.Random(3)
    texts = [document(rng) for _ in range(1200)]
    shard(tmp_path / "a", write_documents(tmp_path / "a.jsonl", texts[:600]))
    shard(tmp_path / "b", write_documents(tmp_path / "b.jsonl", texts))
    small = {tuple(s.sentences) for s in sections(tmp_path / "a", "heldout")}
    large = {tuple(s.sentences) for s in sections(tmp_path / "b", "heldout")}
    assert len(small) == 50 and len(large) == 60 - 10
    old = {tuple(s.sentences) for s in everything(tmp_path / "a")}
    assert large & old <= small


def test_copies_kept_on_request_share_a_side(tmp_path: Path) -> None:
    texts = [f"Document number {n // 2} is here twice." for n in range(200)]
    path = write_documents(tmp_path / "x.jsonl", texts)
    shard(tmp_path / "out", path, deduplicate="none")
    train = {section.sentences[0] for section in sections(tmp_path / "out")}
    held = {section.sentences[0] for section in sections(tmp_path / "out", "heldout")}
    assert held and not train & held
    same = write_documents(tmp_path / "same.jsonl", ["The very same document."] * 30)
    shard(tmp_path / "same", same, deduplicate="none")
    assert len(sections(tmp_path / "same")) == 30


@settings(max_examples=50)
@given(st.lists(st.integers(1, 9), max_size=12), st.integers(1, 7))
def test_sections_keep_every_sentence_in_order(lengths: list[int], most: int) -> None:
    paragraphs = [[f"{p}.{s}" for s in range(length)] for p, length in enumerate(lengths)]
    cut = list(cut_sections(paragraphs, most))
    assert [x for section in cut for part in section for x in part] == [
        x for paragraph in paragraphs for x in paragraph
    ]
    assert all(0 < sum(map(len, section)) <= most for section in cut)
    assert all(part for section in cut for part in section)
    assert all(sum(map(len, section)) == most for section in cut[:-1])


def test_segments_roll_without_a_trace(
    corpus: Path,
    reference: tuple[Path, dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("data_prep.corpus.clean.SEGMENT_BYTES", 3000)
    config = config_for(corpus, shard_size=100_000)
    make_shards(config, tmp_path, 10_000_000)
    assert digests(tmp_path) == digests(reference[0])


def test_units_of_a_large_corpus_are_larger_and_not_more(
    corpus: Path,
    reference: tuple[Path, dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("data_prep.corpus.clean.PIECE_BYTES", 1000)
    monkeypatch.setattr("data_prep.corpus.clean.MOST_UNITS", 4)
    files = discover(corpus, {})
    total = sum(file.path.stat().st_size for file in files)
    assert total / clean.unit_bytes(files) <= 4 < 2 * total / clean.unit_bytes(files)
    make_shards(config_for(corpus, shard_size=100_000), tmp_path)
    assert digests(tmp_path) == digests(reference[0])


def test_the_stage_runs_from_its_config(tmp_path: Path) -> None:
    config = Config()
    config.paths.store = str(tmp_path / "store")
    path = write_documents(tmp_path / "x.jsonl", [f"Document number {n} here." for n in range(20)])
    config.corpus.paths = str(path)
    assert Shard().files(config).named == [("x.jsonl", path)]
    assert Shard().inputs(config) == {}
    out = tmp_path / "store" / "shard" / "out"
    out.mkdir(parents=True)
    counts = Shard().run(Work(config, {}, out, "fingerprint", files=Shard().files(config)))
    assert counts["documents"]["kept"] == 20
    assert counts["sections"] == {"train": 18, "heldout": 2}


def test_two_processes_may_keep_and_trim_the_same_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = PieceCache(tmp_path / "cache", {}, version=1, most_bytes=0)
    for number in range(2):  # the second finds the first one's folder in place
        unit = tmp_path / f"unit{number}"
        unit.mkdir()
        (unit / "tally.json").write_text("{}")
        cache.keep("abc", unit)
        assert not unit.exists()
    folder = tmp_path / "taken"
    folder.mkdir()
    with monkeypatch.context() as patch:  # a file system without hard links
        patch.setattr("os.link", lambda *_: (_ for _ in ()).throw(PermissionError("no links")))
        assert cache.take("abc", folder)
    assert (folder / "tally.json").read_text() == "{}"
    entries = list(cache._entries())
    shutil.rmtree(tmp_path / "cache" / "abc")  # by another process that trims
    monkeypatch.setattr(PieceCache, "_entries", lambda self: iter(entries))
    cache.trim()


def test_workers_load_no_compiler() -> None:
    """numba takes 60 MB in every process, and no pass of the stage needs it."""
    loaded = "[name for name in ('numba', 'pyarrow', 'scipy') if name in sys.modules]"
    code = f"import sys, data_prep.corpus.build; print({loaded})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
