"""The order of rows is a pure function, every epoch a permutation, and well mixed."""

import numpy as np
import pytest

from pipeline.data.order import Order

SHAPES = {
    "one chunk": [7],
    "fewer chunks than a window": [16, 16, 16],
    "exactly a window": [16] * 4,
    "one more than a window": [16] * 5,
    "a prime number": [16] * 30 + [5],
    "balanced": [16] * 64,
    "unequal": [3, 1, 40, 2, 0, 17, 9, 1, 1, 0, 28],
}


def numbers(order: Order, start: int, count: int) -> np.ndarray:
    """Row numbers in the whole data."""
    _, chunks, rows = order.rows(start, count)
    first = np.cumsum(order.rows_per_chunk) - order.rows_per_chunk
    return first[chunks] + rows


@pytest.mark.parametrize("window", [1, 4, 1000])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_epoch_is_a_permutation(shape: str, window: int) -> None:
    order = Order(np.array(SHAPES[shape]), seed=3, window=window)
    total = sum(SHAPES[shape])
    seen = [numbers(order, epoch * total, total) for epoch in range(3)]
    for epoch in seen:
        assert sorted(epoch) == list(range(total))
    epochs, chunks, rows = order.rows(0, 3 * total)
    np.testing.assert_array_equal(epochs, np.repeat(np.arange(3), total))
    assert (rows < np.array(SHAPES[shape])[chunks]).all() and (rows >= 0).all()
    assert not np.array_equal(seen[0], seen[1])


@pytest.mark.parametrize("shape", SHAPES)
def test_any_part_can_be_asked_for_in_any_order(shape: str) -> None:
    def make() -> Order:
        return Order(np.array(SHAPES[shape]), seed=5, window=4)

    total = sum(SHAPES[shape])
    whole = numbers(make(), 0, 3 * total)
    rng, order = np.random.default_rng(0), make()
    for _ in range(30):
        start, stop = sorted(rng.integers(0, 3 * total, 2).tolist())
        np.testing.assert_array_equal(
            numbers(order, start, stop - start + 1), whole[start : stop + 1]
        )


def test_the_seed_decides() -> None:
    first, again, other = (Order(np.full(20, 16), seed, window=4) for seed in (1, 1, 2))
    np.testing.assert_array_equal(numbers(first, 0, 320), numbers(again, 0, 320))
    assert not np.array_equal(numbers(first, 0, 320), numbers(other, 0, 320))


def test_windows_are_as_equal_as_can_be() -> None:
    order = Order(np.full(65, 10), seed=0, window=32)
    sizes = [len(window.chunks) for window, _ in order.windows(0, 650)]
    assert sorted(sizes) == [21, 22, 22]


def test_neighbours_come_from_far_apart() -> None:
    """Rank correlation of neighbours' source positions.

    Two neighbours share a chunk once in about `window` times, and are unrelated otherwise, so
    what is left is about 1 / window; unshuffled rows would give 1.
    """
    window = 32
    order = Order(np.full(2000, 64), seed=0, window=window)
    position = numbers(order, 0, order.rows_per_epoch)
    for lag in (1, 2, 10, 100):
        correlation = np.corrcoef(position[:-lag], position[lag:])[0, 1]
        assert abs(correlation) < 2 / window
    batch_means = position.reshape(-1, 256).mean(axis=1) / order.rows_per_epoch
    # A batch of 256 rows out of 32 places spreads about 1 / sqrt(12 * 32) around the middle.
    assert batch_means.std() < 2 / np.sqrt(12 * window)


def test_an_early_and_a_late_place_in_the_corpus_are_equally_likely_at_every_time() -> None:
    order = Order(np.full(500, 64), seed=1, window=16)
    position = numbers(order, 0, order.rows_per_epoch)
    correlation = np.corrcoef(position, np.arange(len(position)))[0, 1]
    assert abs(correlation) < 6 / np.sqrt(500)


def test_a_late_position_needs_no_earlier_one() -> None:
    order = Order(np.full(100_000, 256), seed=0, window=32)
    epochs, _, _ = order.rows(10_000_000 * 256, 256)
    assert set(epochs.tolist()) == {100}
