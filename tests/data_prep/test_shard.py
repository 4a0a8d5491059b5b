"""The stage as a whole: same bytes on any number of workers and after a kill; counters balance."""

import csv
import gzip
import hashlib
import json
import logging
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep import shard as stage
from data_prep.cache import PieceCache
from data_prep.config import CorpusConfig
from data_prep.errors import SesameError, UsageError
from data_prep.files import sha256
from data_prep.join import heldout_sections
from data_prep.segments import cut_sections
from data_prep.shard import make_shards
from data_prep.shards import Section, parts, read_sections
from data_prep.sources import Part, discover
from pipeline.config import Config
from pipeline.stages import shard as shard_stage
from pipeline.stages.work import Work

PIECE_BYTES = 12_000


def sentence(rng: random.Random) -> str:
    words = ["the", "river", "of", "old", "stones", "sang", "to", "Åsa", "in", "spring", "again"]
    return " ".join(rng.choices(words, k=rng.randint(4, 12))).capitalize() + "."


def document(rng: random.Random) -> str:
    paragraphs = [
        [sentence(rng) for _ in range(rng.randint(1, 6))] for _ in range(rng.randint(2, 4))
    ]
    return "\n\n".join(" ".join(paragraph) for paragraph in paragraphs)


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


def config_for(paths: Any, **values: Any) -> CorpusConfig:
    return CorpusConfig(**{"paths": paths, "workers": 1, **values})


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def sections(folder: Path, split: str = "train") -> list[Section]:
    return [
        section
        for part in parts(folder, split)
        for section in read_sections(part.path, part.start, part.end)
    ]


def everything(folder: Path) -> list[Section]:
    return sorted(
        sections(folder) + sections(folder, "heldout"), key=lambda s: (s.document, s.section)
    )


def shard(out: Path, paths: Any, piece_bytes: int = PIECE_BYTES, **values: Any) -> dict[str, Any]:
    out.mkdir(parents=True, exist_ok=True)
    return make_shards(config_for(paths, **values), out, piece_bytes)


def write_documents(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


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


def test_outputs_hold_no_hidden_files_and_shards_are_bounded(
    reference: tuple[Path, dict[str, Any]],
) -> None:
    out, counts = reference
    assert not [path for path in out.rglob("*") if path.name.startswith(".")]
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


KILLED = """
import os, signal, sys
from pathlib import Path
from data_prep.config import CorpusConfig
from data_prep.shard import make_shards
paths, out, left = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
rename = os.replace
def rename_until_killed(source, target):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, target)
os.replace = rename_until_killed
make_shards(CorpusConfig(paths=paths, workers=1, shard_size=100_000), out, {piece_bytes})
"""


def kill(corpus: Path, out: Path, renames: int) -> int:
    script = KILLED.replace("{piece_bytes}", str(PIECE_BYTES))
    command = [sys.executable, "-c", script, str(corpus), str(out), str(renames)]
    return subprocess.run(command, capture_output=True).returncode


def test_a_killed_stage_ends_up_with_the_same_bytes(
    corpus: Path, reference: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    # Each launch is killed at its n-th rename: while cleaning, writing, moving and at the very end.
    for renames in (8, 15, 15, 20):
        assert kill(corpus, tmp_path, renames) == -signal.SIGKILL
    counts = shard(tmp_path, corpus, shard_size=100_000)
    assert digests(tmp_path) == digests(reference[0])
    assert counts == reference[1]


@pytest.mark.parametrize("broken", ["clean_piece", "join_pieces", "write_piece"])
def test_finished_pieces_are_not_made_again(
    corpus: Path,
    reference: tuple[Path, dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    broken: str,
) -> None:
    order = ["clean_piece", "join_pieces", "write_piece"]
    made: Counter[str] = Counter()

    def counting(name: str, fail_after: int | None) -> Callable[..., None]:
        original = getattr(stage, name)

        def make(*arguments: Any, **named: Any) -> None:
            if made[name] == fail_after:
                raise KeyboardInterrupt
            made[name] += 1
            original(*arguments, **named)

        return make

    with monkeypatch.context() as patch:
        for name in order:
            last = 0 if name == "join_pieces" else 2
            patch.setattr(stage, name, counting(name, last if name == broken else None))
        with pytest.raises(KeyboardInterrupt):
            shard(tmp_path, corpus, shard_size=100_000)
    before = Counter(made)
    with monkeypatch.context() as patch:
        for name in order:
            patch.setattr(stage, name, counting(name, None))
        shard(tmp_path, corpus, shard_size=100_000)
    assert digests(tmp_path) == digests(reference[0])
    pieces = {"clean_piece": made["clean_piece"], "join_pieces": 1}
    pieces["write_piece"] = len(list(tmp_path.glob("*.tar")))
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
    original = stage.clean_piece

    def remember(parts: list[Part], folder: Path, config: CorpusConfig) -> None:
        cleaned.append(parts)
        original(parts, folder, config)

    monkeypatch.setattr(stage, "clean_piece", remember)

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


def test_where_exclude_and_fields(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    records = [
        {"key": number, "body": f"This is document number {number}.", "kind": kind, "ok": True}
        for number, kind in enumerate(["note", "note", "letter"] * 5)
    ]
    path.write_text("\n".join(map(json.dumps, records)))
    counts = shard(
        tmp_path / "out", path, text_field="body", id_field="key",
        where={"kind": "note", "ok": "true"}, exclude=["0", "3"],
    )  # fmt: skip
    assert counts["documents"]["dropped"] == {"exclude": 2, "where": 5}
    assert {section.id for section in everything(tmp_path / "out")} == {
        str(record["key"]) for record in records if record["kind"] == "note"
    } - {"0", "3"}


def test_lists_of_the_users_files_count_as_content(tmp_path: Path) -> None:
    path = write_documents(tmp_path / "x.jsonl", [f"Take no. {n} of pt. Smith." for n in range(20)])
    (tmp_path / "ids").write_text("x.jsonl:0\n\nx.jsonl:37 \n")
    (tmp_path / "own").write_text("pt\n")
    lists = {
        "exclude_file": str(tmp_path / "ids"),
        "abbreviations_file": str(tmp_path / "own"),
    }
    counts = shard(tmp_path / "out", path, **lists)
    assert counts["documents"]["dropped"] == {"exclude": 2}
    assert all(len(section.sentences) == 1 for section in everything(tmp_path / "out"))
    config = Config()
    config.corpus = config_for(str(path), **lists)
    assert shard_stage.files(config)[1:] == [
        ("corpus.exclude_file", tmp_path / "ids"),
        ("corpus.abbreviations_file", tmp_path / "own"),
    ]
    with pytest.raises(UsageError, match=r"corpus\.exclude_file=.*one id a line"):
        shard(tmp_path / "bad", path, exclude_file=str(tmp_path / "none"))


def test_sources_weigh_what_they_are_told(tmp_path: Path) -> None:
    rng = random.Random(9)
    for name, count in (("small", 40), ("large", 360)):
        write_documents(tmp_path / f"{name}.jsonl", [document(rng) for _ in range(count)])
    named = {name: str(tmp_path / f"{name}.jsonl") for name in ("small", "large")}
    counts = shard(tmp_path / "out", [], sources=named, weights={"large": 0.5}, temperature=0.7)
    sizes = {name: found["bytes"] for name, found in counts["sources"].items()}
    weights = {name: found["weight"] for name, found in counts["sources"].items()}
    ratio = sizes["small"] / sizes["large"]
    assert weights["small"] / (2 * weights["large"]) == pytest.approx(ratio**-0.3, rel=1e-4)
    total = weights["small"] * sizes["small"] + 2 * weights["large"] * sizes["large"]
    assert total == pytest.approx(sum(sizes.values()), rel=1e-4)
    for section in sections(tmp_path / "out"):
        assert section.weight == weights[section.source.split("/")[0]]
    assert all(section.weight == 1.0 for section in sections(tmp_path / "out", "heldout"))


def test_a_group_is_held_out_as_a_whole(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random(11)
    path = tmp_path / "x.jsonl"
    records = [{"text": document(rng), "patient": n % 60, "same": 1} for n in range(600)]
    del records[0]["patient"]
    path.write_text("\n".join(map(json.dumps, records)))
    shard(tmp_path / "out", path, group_field="patient")
    held = {section.group for section in sections(tmp_path / "out", "heldout")}
    train = {section.group for section in sections(tmp_path / "out")}
    assert len(held) >= 4 and not held & (train - {None})
    assert None in train | held, "a document without a group is one by itself"
    with caplog.at_level(logging.WARNING):
        shard(tmp_path / "one", path, group_field="same", where={"same": "1"})
    assert "nothing is held out" in caplog.text


@pytest.mark.parametrize(
    ("documents", "texts"),
    [
        (
            "blank_line",
            [["First line here, sir.", "Second line here, sir."], ["Third line, at last."]],
        ),
        ("line", [["First line here, sir."], ["Second line here, sir."], ["Third line, at last."]]),
        ("file", [["First line here, sir.", "Second line here, sir.", "Third line, at last."]]),
    ],
)
def test_what_ends_a_text_document(tmp_path: Path, documents: str, texts: list[list[str]]) -> None:
    (tmp_path / "x.txt").write_bytes(
        b"\xef\xbb\xbf\r\nFirst line here, sir.\r\nSecond line here, sir.\r\n \r\n"
        b"Third line, at last."
    )
    shard(tmp_path / "out", tmp_path / "x.txt", documents=documents)
    assert [section.sentences for section in everything(tmp_path / "out")] == texts


def test_tables(tmp_path: Path) -> None:
    with open(tmp_path / "a.csv", "w", newline="") as stream:
        csv.writer(stream).writerows(
            [
                ["id", "text"],
                ["1", 'Said "yes, sir",\nand left the room.'],
                ["2"],
                ["3", "x" * 200_000],
            ]
        )
    (tmp_path / "b.tsv").write_text(
        'id\ttext\n9\tAn "unclosed quote goes here.\n8\tAnother row of words it is.\n'
    )
    counts = shard(tmp_path / "out", [str(tmp_path / "a.csv"), str(tmp_path / "b.tsv")])
    assert counts["documents"]["dropped"] == {"missing_text": 1}
    assert [section.id for section in everything(tmp_path / "out")] == ["1", "3", "9", "8"]
    with pytest.raises(UsageError, match=r"corpus\.text_field=body: a\.csv"):
        shard(tmp_path / "out2", tmp_path / "a.csv", text_field="body")


def test_parquet(tmp_path: Path) -> None:
    rng = random.Random(4)
    count = 400
    texts: list[Any] = [document(rng) for _ in range(count)]
    texts[7], texts[300] = None, b"Bad \xff bytes in here, sir, and more."
    table = pa.table(
        {
            "body": pa.array([t.encode() if isinstance(t, str) else t for t in texts], pa.binary()),
            "key": pa.array(range(count)),
            "kind": pa.array(["note", "letter"] * (count // 2)).dictionary_encode(),
            "unused": pa.array(["x" * 500] * count),
        }
    )
    strings = pa.Array.from_buffers(pa.string(), count, table["body"].chunk(0).buffers())
    table = table.set_column(0, "body", strings)
    path = tmp_path / "x.parquet"
    pq.write_table(table, path, row_group_size=30)
    fields = {"text_field": "body", "id_field": "key"}
    counts = shard(tmp_path / "out", path, 20_000, **fields, where={"kind": "letter"})
    assert counts["documents"]["dropped"] == {"missing_text": 1, "where": count // 2}
    assert [section.id for section in everything(tmp_path / "out")] == [
        str(number) for number in range(1, count, 2) if number != 7
    ]
    shard(tmp_path / "whole", path, 1 << 30, **fields, where={"kind": "letter"})
    assert digests(tmp_path / "whole") == digests(tmp_path / "out")
    counts = shard(tmp_path / "all", path, 20_000, **fields)
    assert counts["documents"]["repaired"] == {"invalid_utf8": 1}
    with pytest.raises(SesameError, match=r"x\.parquet, row 7: missing_text"):
        shard(tmp_path / "strict", path, **fields, strict=True)
    with pytest.raises(UsageError, match=r"corpus\.text_field=text: x\.parquet"):
        shard(tmp_path / "other", path)
    (tmp_path / "y.parquet").write_bytes(path.read_bytes()[:-100])
    paths = [str(path), str(tmp_path / "y.parquet")]
    counts = shard(tmp_path / "cut", paths, 20_000, **fields)
    assert counts["documents"]["broken_files"] == 1


def test_a_dump_becomes_prose(tmp_path: Path) -> None:
    page = (
        "<page>\n<title>{0}</title><ns>{1}</ns><id>{0}</id>{2}\n"
        "<revision><text>{3}</text></revision>\n</page>\n"
    )
    text = (
        "'''Fish''' number {} live in [[water (liquid)|water]]. They swim.\n== Food ==\nThey eat."
    )
    pages = [page.format(number, 0, "", text.format(number)) for number in range(40)]
    pages += [page.format(50, 1, "", "Talk"), page.format(51, 0, '<redirect title="1" />', "#R")]
    pages += [page.format(52, 0, "", "{{disambig}} Many things.")]
    (tmp_path / "d.xml").write_text(f"<mediawiki>\n{''.join(pages)}</mediawiki>")
    counts = shard(tmp_path / "out", tmp_path / "d.xml")
    assert counts["documents"]["dropped"] == {"disambiguation": 1, "not_article": 1, "redirect": 1}
    written = everything(tmp_path / "out")
    assert [section.id for section in written] == [str(number) for number in range(40)]
    assert written[7].sentences == ["Fish number 7 live in water.", "They swim.", "They eat."]


def test_bad_input_is_counted_noted_and_never_quoted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = [
        json.dumps({"text": f"A good document, number {number}."}).encode() for number in range(9)
    ]
    bad = [
        b'{"text": "SECRET',
        b'["SECRET", "not an object"]',
        b'{"text": null, "note": "SECRET"}',
        b'{"text": 7}',
        b"[" * 100_000,
        b'{"text": "SECRET \xff\xfe document with bad bytes."}',
        b'{"text": "' + b" ".join(b"Line %d goes on." % n for n in range(500_000)) + b'"}',
        b'{"text": "Half a pair \\ud83d and a NUL \\u0000 in it."}',
        b"",
    ]
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(good + bad))
    (tmp_path / "empty.txt").write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        counts = shard(tmp_path / "out", [str(path), str(tmp_path / "empty.txt")], 1 << 24)
    documents = counts["documents"]
    assert documents["dropped"] == {"malformed_json": 3, "missing_text": 2}
    assert documents["kept"] == 12
    assert documents["repaired"] == {
        "byte_order_mark": 1,
        "control_characters": 1,
        "invalid_utf8": 1,
        "lone_surrogates": 1,
    }
    assert "x.jsonl, byte" in caplog.text and "malformed_json" in caplog.text
    assert "SECRET" not in caplog.text + json.dumps(counts)
    assert "SECRET" not in (tmp_path / "out" / "statistics.json").read_text()
    with pytest.raises(SesameError, match=r"x\.jsonl, byte \d+: malformed_json") as error:
        shard(tmp_path / "strict", path, 1 << 24, strict=True)
    assert "SECRET" not in str(error.value)
    assert max(len(section.sentences) for section in everything(tmp_path / "out")) == 2000


def test_a_truncated_archive_keeps_what_was_read(tmp_path: Path) -> None:
    rng = random.Random(1)
    lines = "".join(json.dumps({"text": document(rng)}) + "\n" for _ in range(2000))
    data = gzip.compress(lines.encode())
    (tmp_path / "x.jsonl.gz").write_bytes(data[: len(data) // 2])
    counts = shard(tmp_path / "out", tmp_path / "x.jsonl.gz")
    assert counts["documents"]["broken_files"] == 1
    assert 500 < counts["documents"]["kept"] < 1500
    with pytest.raises(SesameError, match=r"x\.jsonl\.gz, byte \d+: truncated"):
        shard(tmp_path / "strict", tmp_path / "x.jsonl.gz", strict=True)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"min_characters": 10_000}, r"corpus\.min_characters=10000 took 9"),
        ({"fraction": 0.0}, r"corpus\.fraction=0\.0 took 9"),
        ({"where": {"kind": "x"}}, r"corpus\.where={'kind': 'x'} took 9"),
        ({"text_field": "body"}, "missing_text took 9"),
    ],
)
def test_nothing_left_is_an_error_that_names_the_filter(
    tmp_path: Path, values: dict[str, Any], reason: str
) -> None:
    path = write_documents(tmp_path / "x.jsonl", [f"Document number {n} here." for n in range(9)])
    with pytest.raises(SesameError, match=f"none of 9 documents is left: {reason}"):
        shard(tmp_path / "out", path, **values)


def test_empty_files_alone_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(b"")
    with pytest.raises(SesameError, match="hold no documents"):
        shard(tmp_path / "out", tmp_path / "x.txt")


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
    monkeypatch.setattr("data_prep.segments.SEGMENT_BYTES", 3000)
    config = config_for(corpus, shard_size=100_000)
    make_shards(config, tmp_path, 10_000_000)
    assert digests(tmp_path) == digests(reference[0])


def test_the_stage_runs_from_its_config(tmp_path: Path) -> None:
    config = Config()
    config.paths.store = str(tmp_path / "store")
    path = write_documents(tmp_path / "x.jsonl", [f"Document number {n} here." for n in range(20)])
    config.corpus.paths = str(path)
    assert shard_stage.files(config) == [("x.jsonl", path)]
    assert shard_stage.inputs(config) == {}
    out = tmp_path / "store" / "shard" / "out"
    out.mkdir(parents=True)
    counts = shard_stage.run(Work(config, {}, out, "fingerprint"))
    assert counts["documents"]["kept"] == 20
    assert counts["sections"] == {"train": 18, "heldout": 2}
