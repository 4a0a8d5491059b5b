"""Batches of an evaluation: every row once, of equal size, and as many as keep all threads busy."""

import numpy as np
import pytest
import torch

from pipeline.encoders.evaluation import BATCH_UNITS, LEAST_UNITS, evaluation_order, for_each_batch
from pipeline.encoders.inputs import Ints

LENGTHS = np.random.default_rng(0).integers(1, 60, 700)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("inputs", [1, 2, 70, 700])
def test_batches_have_every_row_once_and_keep_all_threads_busy(inputs: int, threads: int) -> None:
    lengths = LENGTHS[:inputs]
    batches = evaluation_order(lengths, threads)
    rows = np.concatenate(batches)
    assert sorted(rows) == list(range(inputs)) and (np.diff(lengths[rows]) <= 0).all()
    sizes = np.array([lengths[batch].sum() for batch in batches])
    assert sizes.max() <= BATCH_UNITS + lengths.max()
    if inputs == 700:
        assert len(batches) % threads == 0 and np.ptp(sizes) <= 2 * lengths.max()


def test_nothing_has_no_batches() -> None:
    assert evaluation_order(np.zeros(0, np.int64)) == []
    assert list(for_each_batch(len, np.zeros(0, np.int64), torch.device("cpu"))) == []


@pytest.mark.parametrize(
    ("units", "device", "threads"),
    [(LEAST_UNITS, "cpu", 2), (20_000, "cuda", 2), (20_000, "cpu", 1)],
)
def test_few_inputs_and_other_devices_have_all_threads_for_each_batch(
    units: int, device: str, threads: int
) -> None:
    def compute(rows: Ints) -> int:
        return torch.get_num_threads()

    given = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        counts = set(for_each_batch(compute, np.full(units // 8, 8), torch.device(device)))
    finally:
        torch.set_num_threads(given)
    assert counts == {threads}
