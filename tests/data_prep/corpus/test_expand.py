"""The expand pass: large single streams and CSV files are cleaned by all workers."""

import csv
import gzip
import json
import logging
import random
from pathlib import Path

import pytest
import zstandard

from data_prep.corpus.build import make_shards
from data_prep.passes import ArraySlice, Passes, SliceDone
from data_prep.reading.sources import survey
from data_prep.work_units import LocalPool
from pipeline.config.schema import Config
from pipeline.stages.shard import Shard
from pipeline.workflow.stage import UserFiles
from tests.data_prep.small_shards import config_for, digests, document
from tests.data_prep.test_passes import Recorder

PIECE_BYTES = 2_000
WHOLE = 1 << 30


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Two streams and a table that no worker could share."""
    draw = random.Random(0)
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name, compress in (("a.gz", gzip.compress), ("b.zst", zstandard.compress)):
        lines = "".join(json.dumps({"text": document(draw)}) + "\n" for _ in range(150))
        stem, ending = name.split(".")
        (folder / f"{stem}.jsonl.{ending}").write_bytes(compress(lines.encode()))
    with (folder / "c.csv").open("w", newline="") as sink:
        rows = csv.writer(sink)
        rows.writerow(["id", "text"])
        rows.writerows([f"c{number}", document(draw)] for number in range(150))
    return folder


def test_divided_files_give_the_bytes_of_undivided_ones(
    corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    counts = {}
    made = {}
    for name, piece_bytes in (("divided", PIECE_BYTES), ("whole", WHOLE)):
        out = tmp_path / name
        out.mkdir()
        recorder = Recorder()
        passes = Passes.below(out, recorder)
        with caplog.at_level(logging.WARNING):
            counts[name] = make_shards(config_for(str(corpus)), out, piece_bytes, passes=passes)
        made[name] = recorder.made
    assert made["divided"]["expand"] == 3 and made["divided"]["clean"] > 20
    assert "expand" not in made["whole"]
    assert counts["divided"] == counts["whole"]
    assert digests(tmp_path / "divided") == digests(tmp_path / "whole")
    assert "cannot be split" not in caplog.text


def test_arrays_take_the_expand_pass(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("data_prep.corpus.clean.PIECE_BYTES", PIECE_BYTES)
    config = Config()
    files = UserFiles(survey=survey(str(corpus)))
    divided = Shard().divided_passes(config, files)
    assert divided == ("expand", "clean", "write")
    alone, together = tmp_path / "alone", tmp_path / "together"
    alone.mkdir(), together.mkdir()
    make_shards(config_for(str(corpus)), alone, PIECE_BYTES)
    for of_pass in divided:
        for number in (1, 0):
            share = ArraySlice(number, 2, of_pass)
            passes = Passes.below(together, LocalPool(1), share, divided)
            with pytest.raises(SliceDone):
                make_shards(config_for(str(corpus)), together, PIECE_BYTES, passes=passes)
    make_shards(config_for(str(corpus)), together, PIECE_BYTES)
    assert digests(together) == digests(alone)


def test_an_array_of_json_stays_with_one_worker_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    draw = random.Random(0)
    path = tmp_path / "x.json"
    path.write_text(json.dumps([{"text": document(draw)} for _ in range(100)]))
    out = tmp_path / "out"
    out.mkdir()
    with caplog.at_level(logging.WARNING):
        counts = make_shards(config_for(str(path)), out, PIECE_BYTES)
    assert counts["documents"]["kept"] == 100
    assert "x.json cannot be split, so one worker reads all of it" in caplog.text
