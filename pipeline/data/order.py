"""The order in which a run reads its rows: a pure function of the seed and the position.

A run reads one endless sequence of epochs. Each epoch is a permutation of all rows in two levels:
chunks are permuted, then all rows of a shuffle window, about `window` consecutive chunks, are
shuffled. With 32 chunks of 256 rows a window mixes 8,192 rows from 32 places of the corpus. The
windows of an epoch have sizes as equal as possible, so that none has only a chunk or two.

Access to any position costs one sort of the chunk numbers per epoch and one sort of the rows per
window, no matter how far into the sequence it is.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_prep.random import key, keys

Array = NDArray[Any]


@dataclass(frozen=True)
class Window:
    """A shuffle window: the rows that are shuffled together."""

    epoch: int
    start: int  # position of its first row in the endless sequence
    chunks: NDArray[np.int64]  # [chunks] numbers of its chunks
    picks: NDArray[np.int64]  # [rows] in reading order, indices into the concatenated chunks
    numbers: NDArray[np.int64]  # [rows] in reading order, row numbers in the whole data


@dataclass(frozen=True)
class Epoch:
    """One permutation of the chunks, cut into windows."""

    number: int
    chunks: NDArray[np.int64]  # [chunks] chunk numbers in reading order
    first_chunks: NDArray[np.int64]  # [windows + 1] indices into `chunks`
    first_rows: NDArray[np.int64]  # [windows + 1] rows of the epoch before each window


class Order:
    """The endless sequence of rows of one set of chunks."""

    def __init__(self, rows_per_chunk: Array, seed: int, window: int):
        self.rows_per_chunk = np.asarray(rows_per_chunk, np.int64)
        self.seed, self.window = seed, window
        self.rows_per_epoch = int(self.rows_per_chunk.sum())
        assert self.rows_per_epoch > 0, "an order needs rows"
        self._first_row = np.cumsum(self.rows_per_chunk) - self.rows_per_chunk
        # Runs read forward, so only the current epoch and window are cached.
        self._epoch = self._make_epoch(0)
        self._window = self._make_window(self._epoch, 0)

    def windows(self, start: int, stop: int) -> Iterator[tuple[Window, slice]]:
        """Yield the windows that contain positions `start` up to `stop`, each with the slice of it
        that lies in this range."""
        while start < stop:
            window = self._window_at(start)
            end = min(stop, window.start + len(window.picks))
            yield window, slice(start - window.start, end - window.start)
            start = end

    def rows(self, start: int, count: int) -> tuple[Array, Array, Array]:
        """Return arrays [count] of epoch, chunk and row in the chunk, from position `start` on."""
        found = [
            (np.full(part.stop - part.start, window.epoch), window.numbers[part])
            for window, part in self.windows(start, start + count)
        ]
        epochs = np.concatenate([epoch for epoch, _ in found])
        numbers = np.concatenate([number for _, number in found])
        # An empty chunk has the same first row as the next one; side="right" skips it.
        chunks = np.searchsorted(self._first_row, numbers, side="right") - 1
        return epochs, chunks, numbers - self._first_row[chunks]

    def _window_at(self, position: int) -> Window:
        if not 0 <= position - self._window.start < len(self._window.picks):
            number, row = divmod(position, self.rows_per_epoch)
            if number != self._epoch.number:
                self._epoch = self._make_epoch(number)
            index = int(np.searchsorted(self._epoch.first_rows, row, side="right")) - 1
            self._window = self._make_window(self._epoch, index)
        return self._window

    def _make_epoch(self, number: int) -> Epoch:
        chunks = _permutation(key(self.seed, "chunks", number), len(self.rows_per_chunk))
        windows = -(-len(chunks) // self.window)
        first_chunks = np.arange(windows + 1) * len(chunks) // windows
        rows_before = np.concatenate([[0], np.cumsum(self.rows_per_chunk[chunks])])
        return Epoch(number, chunks, first_chunks, rows_before[first_chunks])

    def _make_window(self, epoch: Epoch, index: int) -> Window:
        chunks = epoch.chunks[epoch.first_chunks[index] : epoch.first_chunks[index + 1]]
        counts = self.rows_per_chunk[chunks]
        # Row number in the whole data = index in the joined chunks + a shift, constant per chunk.
        joined = np.arange(counts.sum())  # [rows of the window]
        shifts = self._first_row[chunks] - (np.cumsum(counts) - counts)  # [chunks]
        numbers = joined + np.repeat(shifts, counts)  # [rows of the window]
        picks = _permutation(key(self.seed, "rows", epoch.number, index), len(joined))
        start = epoch.number * self.rows_per_epoch + int(epoch.first_rows[index])
        return Window(epoch.number, start, chunks, picks, numbers[picks])


def _permutation(key: int, count: int) -> NDArray[np.int64]:
    return np.argsort(keys(key, np.arange(count)), kind="stable")
