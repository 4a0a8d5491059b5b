"""Passes divided among launches: whoever makes the units, the bytes are the same."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data_prep.config import TokenizerConfig
from data_prep.corpus.build import make_shards, shard_passes
from data_prep.errors import SesameError
from data_prep.examples.build import build
from data_prep.examples.streams import build_streams
from data_prep.passes import ArraySlice, Passes, SliceDone
from data_prep.progress import Bar
from data_prep.tokenizers.build import build_tokenizer
from data_prep.work_units import LocalPool, MakeUnit, WorkUnit, run_unit
from pipeline.config.schema import Config
from pipeline.stages import STAGES
from pipeline.workflow.stage import UserFiles
from tests.data_prep.small_examples import WORDS, config, make_tokenizer
from tests.data_prep.small_examples import make_shards as make_small_shards
from tests.data_prep.small_shards import config_for, digests, document, write_documents
from tests.pipeline.toy_streams import make_examples, streams_config

Build = Callable[[Path, Passes], Any]  # (out, passes)
SLICES = 3


def build_of(stage: str, root: Path) -> tuple[Build, tuple[str, ...]]:
    """Return a stage on small inputs below `root`, and the passes that it says it divides."""
    whole = Config()
    if stage == "shard":
        rng = random.Random(0)
        texts = [document(rng) for _ in range(150)]
        paths = str(write_documents(root / "texts.jsonl", [*texts, texts[3]]))
        corpus = config_for(paths, shard_size=30_000, near_duplicates=0.8)
        return (
            lambda out, passes: make_shards(corpus, out, 12_000, passes=passes),
            shard_passes(corpus),
        )
    if stage == "streams":
        shards, words, _ = make_examples(root)
        whole = replace(whole, tokenizer=TokenizerConfig("words"))
        return (
            lambda out, passes: build_streams(shards, words, out, streams_config(), passes),
            STAGES["examples"].divided_passes(whole, UserFiles()),
        )
    shards = make_small_shards(root / "shards")
    if stage == "tokenizer":
        trained = TokenizerConfig("wordpiece", 60)
        return (
            lambda out, passes: build_tokenizer(shards, out, trained, passes),
            STAGES["tokenizer"].divided_passes(whole, UserFiles()),
        )
    (root / "tokenizer").mkdir()
    tokenizer = make_tokenizer(root / "tokenizer", WORDS)
    return (
        lambda out, passes: build(shards, tokenizer, out, config(duplicates=2), passes),
        STAGES["examples"].divided_passes(whole, UserFiles()),
    )


class Recorder:
    """An executor that makes units here and remembers the passes in which it made some."""

    def __init__(self) -> None:
        self.made: dict[str, int] = {}

    def make(
        self, units: Sequence[WorkUnit], make: MakeUnit, root: Path, title: str, bar: Bar
    ) -> None:
        for unit in units:
            run_unit(unit, make, root)
            self.made[title] = self.made.get(title, 0) + 1


@pytest.fixture(autouse=True)
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several units in every pass, and runs within a range of the sorted streams."""
    monkeypatch.setattr("data_prep.corpus.matching.GROUP_FILES", 2)
    monkeypatch.setattr("data_prep.corpus.matching.BUCKETS_PER_GROUP", 1)
    monkeypatch.setattr("data_prep.tokenizers.counting.UNIT_BYTES", 1)
    monkeypatch.setattr("data_prep.examples.streams.SCATTER_BYTES", 1)
    monkeypatch.setattr("data_prep.examples.sorting.RUN_TOKENS", 150)
    monkeypatch.setattr("data_prep.examples.sorting.MOST_RANGES", 4)


@pytest.mark.parametrize("stage", ["shard", "tokenizer", "examples", "streams"])
def test_arrays_of_slices_make_all_units_and_the_same_bytes(stage: str, tmp_path: Path) -> None:
    make, divided = build_of(stage, tmp_path)
    alone, together = tmp_path / "alone", tmp_path / "together"
    for out in (alone, together):
        out.mkdir()
    whole = Recorder()
    make(alone, Passes.below(alone, whole))
    assert [name for name in whole.made if name in divided] == list(divided)
    assert all(whole.made[name] > 1 for name in divided)
    for name in divided:
        for number in (1, 2, 0):  # tasks of an array start in any order
            with pytest.raises(SliceDone):
                share = ArraySlice(number, SLICES, name)
                make(together, Passes.below(together, LocalPool(1), share))
    rest = Recorder()
    make(together, Passes.below(together, rest))
    assert not rest.made.keys() & set(divided), "the arrays have made all units of their passes"
    assert digests(together) == digests(alone)


def test_slices_make_undivided_passes_on_their_way(tmp_path: Path) -> None:
    make, _ = build_of("shard", tmp_path)
    alone, together = tmp_path / "alone", tmp_path / "together"
    for out in (alone, together):
        out.mkdir()
    make(alone, Passes.below(alone))
    for name in ("clean", "write"):
        for number in range(SLICES):
            with pytest.raises(SliceDone):
                share = ArraySlice(number, SLICES, name)
                make(together, Passes.below(together, LocalPool(1), share, ("clean", "write")))
    rest = Recorder()
    make(together, Passes.below(together, rest))
    assert not rest.made
    assert digests(together) == digests(alone)


def test_a_slice_of_a_later_pass_asks_for_the_earlier_ones(tmp_path: Path) -> None:
    make, _ = build_of("examples", tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(SesameError, match="work units of the earlier pass tokenize are missing"):
        make(out, Passes.below(out, share=ArraySlice(0, 2, "write")))


def test_the_sorted_streams_do_not_depend_on_the_size_of_runs_and_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, _ = build_of("streams", tmp_path)
    sizes = ((1 << 24, 256, 512), (150, 4, 512), (37, 2, 512), (500, 64, 512), (37, 2, 3))
    for number, (tokens, ranges, runs) in enumerate(sizes):
        monkeypatch.setattr("data_prep.examples.sorting.RUN_TOKENS", tokens)
        monkeypatch.setattr("data_prep.examples.sorting.MOST_RANGES", ranges)
        monkeypatch.setattr("data_prep.examples.sorting.MOST_RUNS", runs)
        out = tmp_path / str(number)
        out.mkdir()
        make(out, Passes.below(out))
        assert digests(out) == digests(tmp_path / "0")
