"""Cursors refuse other data, spans pass over what is skipped, schedules divide by their ranks."""

import json
from dataclasses import replace

import numpy as np
import pytest

from data_prep.errors import SesameError, UsageError
from pipeline.data.cursor import (
    BatchSchedule,
    Cursor,
    Identity,
    check,
    cut_spans,
    next_spans,
)

IDENTITY = Identity(
    examples="ab12", shards="cd34", seed=1, shuffle_window=32, global_batch_size=256, ramp_steps=0
)
CURSOR = Cursor(phase=0, position=512, skipped=((10, 20),), identity=IDENTITY)


def test_a_cursor_survives_its_file() -> None:
    assert Cursor.from_json(json.loads(json.dumps(CURSOR.as_json()))) == CURSOR


def test_the_same_data_is_accepted() -> None:
    check(CURSOR, IDENTITY, "checkpoint")


@pytest.mark.parametrize(
    ("field", "value", "difference"),
    [
        ("examples", "ef56", "fingerprint ab12 → ef56"),
        ("shards", "ef56", "shard list cd34 → ef56"),
        ("seed", 2, r"trainer\.seed 1 → 2"),
        ("shuffle_window", 16, r"trainer\.shuffle_window 32 → 16"),
        ("global_batch_size", 512, r"trainer\.global_batch_size 256 → 512"),
        ("ramp_steps", 100, r"trainer\.ramp_steps 0 → 100"),
    ],
)
def test_other_data_is_refused_with_the_difference(
    field: str, value: int | str, difference: str
) -> None:
    with pytest.raises(SesameError, match=f"checkpoints/7: .*{difference}"):
        check(CURSOR, replace(IDENTITY, **{field: value}), "checkpoints/7")


def test_skipped_ranges_are_merged() -> None:
    cursor = CURSOR.skip(30, 40).skip(20, 25).skip(35, 50).skip(100, 110)
    assert cursor.skipped == ((10, 25), (30, 50), (100, 110))
    assert cursor.position == CURSOR.position


def test_spans_are_the_next_positions_that_are_not_skipped() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        edges = np.unique(rng.integers(0, 60, 8)).tolist()
        skipped = list(zip(edges[::2], edges[1::2], strict=False))
        position, count = int(rng.integers(0, 50)), int(rng.integers(1, 30))
        gone = {place for start, stop in skipped for place in range(start, stop)}
        wanted = [place for place in range(position, 200) if place not in gone][:count]
        spans = next_spans(position, count, skipped)
        assert [place for start, stop in spans for place in range(start, stop)] == wanted
        first, last = sorted(rng.integers(0, count + 1, 2).tolist())
        cut = cut_spans(spans, first, last)
        assert [place for start, stop in cut for place in range(start, stop)] == wanted[first:last]


def test_the_batch_grows_in_equal_stages() -> None:
    schedule = BatchSchedule(96, ramp_steps=6)
    assert [schedule.size(step) for step in range(8)] == [24, 24, 48, 48, 72, 72, 96, 96]
    assert BatchSchedule(96).size(0) == 96


@pytest.mark.parametrize("ramp_steps", [1, 2, 3, 10])
def test_every_stage_divides_by_the_ranks(ramp_steps: int) -> None:
    for world in (1, 2, 3, 4, 6, 8):
        schedule = BatchSchedule(96, ramp_steps)
        schedule.check(world)
        assert all(schedule.size(step) % world == 0 for step in range(12))


def test_batches_that_do_not_divide_are_refused() -> None:
    with pytest.raises(UsageError, match=r"global_batch_size=10: .* 4 ranks; fits: 8, 12"):
        BatchSchedule(10).check(4)
    with pytest.raises(UsageError, match=r"global_batch_size=20: .*ramp_steps=5.*; fits: 16, 32"):
        BatchSchedule(20, ramp_steps=5).check(4)
