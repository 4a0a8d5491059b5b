"""Batches of a task: the inputs of a bundle stay together."""

import numpy as np

from pipeline.encoders.inputs import EncodedInputs, offsets_of
from pipeline.tasks.batches import TaskData, training_order

LENGTHS = np.array([2, 5, 1, 3, 3, 4])  # units per input
SIZES = np.array([2, 1, 3])  # inputs per bundle


def data(bundle_sizes: np.ndarray | None) -> TaskData:
    offsets = offsets_of(LENGTHS)
    none = np.zeros(0, np.int64), np.zeros_like(offsets)
    tokens = np.repeat(np.arange(len(LENGTHS)), LENGTHS).astype(np.int32)  # the input's number
    inputs = EncodedInputs(tokens, offsets, LENGTHS, *none, np.zeros_like(LENGTHS))
    ones = np.ones_like(LENGTHS)
    return TaskData([], inputs, ones, np.arange(6), bundle_sizes=bundle_sizes)


def test_a_batch_holds_whole_bundles() -> None:
    batch, gold = data(SIZES).batch(np.array([2, 0]))
    assert gold.tolist() == [3, 4, 5, 0, 1]
    assert batch.lengths.tolist() == LENGTHS[[3, 4, 5, 0, 1]].tolist()
    assert data(SIZES).lengths.tolist() == [5, 1, 4]  # of the longest inputs


def test_without_bundles_every_input_stands_alone() -> None:
    batch, gold = data(None).batch(np.array([4, 1]))
    assert gold.tolist() == [4, 1]
    assert batch.tokens_N.tolist() == [4] * 3 + [1] * 5
    assert data(None).lengths.tolist() == LENGTHS.tolist()


def test_an_epoch_has_every_bundle_once() -> None:
    order = training_order(data(SIZES).lengths, 2, np.random.default_rng(1))
    assert sorted(np.concatenate(order).tolist()) == [0, 1, 2]
    assert max(map(len, order)) == 2


def test_every_example_is_seen_once_an_epoch_in_batches_of_like_length() -> None:
    lengths = np.random.default_rng(0).integers(3, 60, size=1000)
    batches = training_order(lengths, 32, np.random.default_rng(1))
    assert sorted(np.concatenate(batches)) == list(range(1000))
    assert len(batches) == 32
    assert all(len(rows) <= 32 for rows in batches)
    spread = np.mean([np.ptp(lengths[rows]) for rows in batches])
    assert spread < 0.5 * np.ptp(lengths)
    again = training_order(lengths, 32, np.random.default_rng(2))
    assert any((a != b).any() for a, b in zip(batches, again, strict=True) if len(a) == len(b))
