"""A batch is its rows, flat, with masks put in."""

from dataclasses import replace

import numpy as np
import torch

from data_prep.examples.chunks import Chunk
from pipeline.data.batch import IGNORE_INDEX, Batch, collate

# Two rows: a pair; then, packed, a pair and a single segment.
ROWS = Chunk(
    tokens=np.array([2, 10, 11, 3, 12, 3, 2, 20, 3, 21, 22, 3, 2, 30, 3], np.uint16),
    row_examples=np.array([0, 1, 3], np.int32),
    example_tokens=np.array([0, 6, 12, 15], np.int32),
    second=np.array([4, 3, 3], np.uint16),
    label=np.array([0, 1, -1], np.int8),
    coin=np.array([1, 1, 0], np.int8),
    documents=np.zeros((3, 2), np.uint32),
    target=np.array([1, 4, 3, 4, 1], np.uint16),
    target_examples=np.array([0, 2, 4, 5], np.int32),
    input=np.array([4, 99, 4, 22, 4], np.uint16),
)


def test_rows_become_a_flat_batch() -> None:
    batch = collate(ROWS)
    assert batch.tokens_N.tolist() == [2, 4, 11, 3, 99, 3, 2, 20, 3, 4, 22, 3, 2, 4, 3]
    assert batch.positions_N.tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 1, 2]
    assert batch.segments_N.tolist() == [0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0, 0]
    assert batch.lengths.tolist() == [6, 6, 3]
    assert batch.targets_M.tolist() == [1, 4, 9, 10, 13]
    assert batch.labels_M.tolist() == [10, 12, 21, 22, 30]
    assert batch.pair_labels_E.tolist() == [0, 1, IGNORE_INDEX]
    for name, value in vars(batch).items():
        assert value.dtype in (torch.int64, np.int64), name


def test_rows_stay_as_they_were() -> None:
    before = ROWS.tokens.copy()
    collate(ROWS)
    np.testing.assert_array_equal(ROWS.tokens, before)


def test_parts_make_up_the_whole() -> None:
    whole = collate(ROWS)
    parts = [collate(ROWS.between(row, row + 1)) for row in range(2)]
    for name in ("tokens_N", "positions_N", "segments_N", "labels_M", "pair_labels_E"):
        joined = torch.cat([getattr(part, name) for part in parts])
        assert torch.equal(joined, getattr(whole, name)), name


def test_no_rows_make_an_empty_batch() -> None:
    batch = collate(ROWS.between(1, 1))
    assert len(batch.tokens_N) == len(batch.targets_M) == len(batch.lengths) == 0


def test_ids_beyond_sixteen_bits() -> None:
    assert ROWS.input is not None
    rows = replace(
        ROWS, tokens=ROWS.tokens.astype(np.uint32) + 100_000, input=ROWS.input.astype(np.uint32)
    )
    assert collate(rows).labels_M.tolist() == [100_010, 100_012, 100_021, 100_022, 100_030]


def test_a_batch_moves_between_devices() -> None:
    moved = collate(ROWS).to("meta")
    assert isinstance(moved, Batch)
    assert moved.tokens_N.device.type == moved.pair_labels_E.device.type == "meta"
    assert moved.lengths.tolist() == [6, 6, 3]
