"""What the stage reads: forms of files, fields and conditions, sources, groups, and bad input."""

import csv
import datetime
import gzip
import json
import logging
import os
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_prep.config import CorpusConfig
from data_prep.errors import SesameError, UsageError
from pipeline.config.schema import Config
from pipeline.stages.shard import Shard
from tests.data_prep.small_shards import (
    config_for,
    digests,
    document,
    everything,
    sections,
    shard,
    write_documents,
)


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
    assert Shard().files(config).named[1:] == [
        ("corpus.exclude_file", tmp_path / "ids"),
        ("corpus.abbreviations_file", tmp_path / "own"),
    ]
    with pytest.raises(UsageError, match=r"corpus\.exclude_file=.*one id per line"):
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
    counts = shard(tmp_path / "out", path, group_field="patient")
    held = {section.group for section in sections(tmp_path / "out", "heldout")}
    train = {section.group for section in sections(tmp_path / "out")}
    assert len(held) >= 4 and not held & (train - {None})
    assert None in train | held, "a document without a group is one by itself"
    split = {"train": len(train - {None}), "heldout": len(held - {None})}
    assert counts["groups"] == {**split, "documents_without": 1}
    assert (
        json.loads((tmp_path / "out" / "statistics.json").read_text())["groups"]
        == (counts["groups"])
    )
    assert "groups" not in shard(tmp_path / "ungrouped", path)
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
    (tmp_path / "c.csv").write_bytes(b"te\rxt,id\n")
    with pytest.raises(UsageError, match=r"c\.csv: its first line is not a row of column names"):
        shard(tmp_path / "out3", tmp_path / "c.csv")


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


def test_ids_and_groups_are_text_that_utf8_can_write(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(
        "".join(
            json.dumps({"id": f"{n}\ud83d", "who": "\udc00", "text": f"Document number {n} here."})
            + "\n"
            for n in range(9)
        )
    )
    counts = shard(tmp_path / "out", path, group_field="who")
    assert counts["documents"]["repaired"] == {"lone_surrogates": 9}
    written = everything(tmp_path / "out")
    assert [section.id for section in written] == [f"{n}\ufffd" for n in range(9)]
    assert {section.group for section in written} == {"\ufffd"}


def test_dates_and_numbers_of_parquet_are_ids_groups_and_conditions(tmp_path: Path) -> None:
    days = [datetime.date(2020, 1, 1 + n // 2) for n in range(20)]
    columns = {
        "text": [f"Document number {n} here." for n in range(20)],
        "day": pa.array(days),
        "time": pa.array([datetime.datetime(2020, 1, 1, n) for n in range(20)], pa.timestamp("ns")),
        "size": pa.array([Decimal(f"{n}.50") for n in range(20)]),
        "length": pa.array([datetime.timedelta(hours=n) for n in range(20)]),
        "visits": pa.array([[day] for day in days]),
    }
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    ids = {
        "day": [f"{day}" for day in days],
        "time": [f"2020-01-01T{n:02}:00:00" for n in range(20)],
        "size": [f"{n}.50" for n in range(20)],
        "length": [str(datetime.timedelta(hours=n)) for n in range(20)],
        "visits": [f'["{day}"]' for day in days],
    }
    for field, wanted in ids.items():
        shard(tmp_path / field, tmp_path / "x.parquet", id_field=field, group_field="day")
        written = everything(tmp_path / field)
        assert [section.id for section in written] == wanted
        assert [section.group for section in written] == ids["day"]
    counts = shard(tmp_path / "one", tmp_path / "x.parquet", where={"day": "2020-01-03"})
    assert counts["documents"]["kept"] == 2


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


def test_files_that_are_not_read_are_listed_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    write_documents(folder / "x.ndjson", [f"Document number {n} here." for n in range(9)])
    counts = shard(tmp_path / "all", folder)
    assert counts["documents"]["kept"] == 9 and "unread_files" not in counts
    (folder / "more.pdf").write_bytes(b"")
    os.mkfifo(folder / "pipe.jsonl")
    counts = shard(tmp_path / "some", folder)
    assert counts["unread_files"] == {"not_a_file": 1, "unknown_ending": 1}
    said = " ".join(capsys.readouterr().err.split())
    assert "1 file is not read: more.pdf (the ending is unknown" in said
    assert "1 file is not read: pipe.jsonl (a FIFO, socket or device" in said
    assert digests(tmp_path / "some") == digests(tmp_path / "all")


def test_empty_files_alone_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(b"")
    with pytest.raises(SesameError, match="hold no documents"):
        shard(tmp_path / "out", tmp_path / "x.txt")


SWEDISH = "Jag vet inte vem som gjorde det. Han kom till oss på kvällen och det var en lång väg."
ENGLISH = "He told us that det. Smith was in the house. It was the end of the day and we left."


def test_each_document_is_split_with_the_abbreviations_of_its_language(tmp_path: Path) -> None:
    """English "det." (detective) ended no Swedish sentence when all lists were one."""
    write_documents(tmp_path / "x.jsonl", [SWEDISH, ENGLISH])
    counts = shard(tmp_path / "out", tmp_path / "x.jsonl")
    swedish, english = everything(tmp_path / "out")
    assert swedish.sentences[0] == "Jag vet inte vem som gjorde det."
    assert english.sentences[0] == "He told us that det. Smith was in the house."
    assert (swedish.language, english.language) == ("sv", "en")
    assert counts["languages"] == {"en": 1, "sv": 1}
    shard(tmp_path / "merged", tmp_path / "x.jsonl", languages="none")
    assert len(everything(tmp_path / "merged")[0].sentences) == 1


def test_documents_of_other_languages_are_dropped_and_counted(tmp_path: Path) -> None:
    write_documents(tmp_path / "x.jsonl", [SWEDISH, ENGLISH, f"{SWEDISH} Och mer."])
    counts = shard(tmp_path / "out", tmp_path / "x.jsonl", languages=["sv"])
    assert counts["documents"]["dropped"] == {"language": 1}
    assert {section.language for section in everything(tmp_path / "out")} == {"sv"}


def test_auto_among_languages_is_refused() -> None:
    with pytest.raises(UsageError, match=r"corpus\.languages=.*auto and none stand alone"):
        CorpusConfig(paths="x", languages=["auto", "sv"]).check()
