"""Loads rows from example shards: the steps of one rank (`Loader`) and held-out batches.

A global batch is the next rows of the order. Rank r of R takes the r-th equal slice of it, and
divides it into micro-batches. Worker processes make whole steps in turn. The sequence of global
batches therefore does not depend on the number of ranks or workers. Workers send compact rows and
the training process makes the tensors, which is cheaper than sending tensors between processes.
"""

import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from data_prep.errors import SesameError
from data_prep.examples.chunks import Chunk, ChunkStore, concatenate
from data_prep.examples.masking import MaskRule, Vocabulary, mask_rows
from data_prep.work_units import end_with_parent
from pipeline.data.batch import Batch, collate
from pipeline.data.cursor import BatchSchedule, Place, Span, cut_spans, next_spans
from pipeline.data.order import Order, Window

NOT_READ = -1


@dataclass(frozen=True)
class Step:
    """One rank's part of one optimizer step."""

    step: int
    first_row: int  # of the global batch, counted from the start of the phase
    next_row: int  # position from which the next global batch is read
    rows: int  # in the global batch
    micro_batches: Sequence[Any]  # of Batch (BERT) or WordBatch (ELMo)


@dataclass(frozen=True)
class _Plan:
    """The rows of one global batch."""

    step: int
    spans: list[Span]


@dataclass(frozen=True)
class _RankRows:
    plan: _Plan
    rows: Chunk | SesameError  # a worker sends its error as a value; the main process raises it


class Loader:
    """Iterates over the steps of one rank that `place` names.

    rank, world       this rank and the number of ranks
    micro_batch_size  rows per micro-batch; None: all rows of the rank
    workers           loader processes; 0 reads in this process
    total_steps       of the whole training, which the mask rate follows if it changes

    Raises `SesameError` if the store is empty or was made with another vocabulary.
    """

    def __init__(
        self,
        store: ChunkStore,
        order: Order,
        vocabulary: Vocabulary,
        rule: MaskRule,
        schedule: BatchSchedule,
        *,
        rank: int = 0,
        world: int = 1,
        micro_batch_size: int | None = None,
        workers: int = 0,
        total_steps: int | None = None,
        place: Place = Place(),  # noqa: B008 immutable
    ):
        schedule.check(world)
        if store.vocab_size != len(vocabulary.special):
            raise SesameError(
                f"{store.folder}: was made with a vocabulary of {store.vocab_size} tokens, but the "
                f"tokenizer has {len(vocabulary.special)}; use the tokenizer it was made with"
            )
        if store.rows == 0:
            raise SesameError(f"{store.folder}: holds no {store.split} rows to train on")
        self._store, self._order = store, order
        self._vocabulary, self._rule, self._schedule = vocabulary, rule, schedule
        self._rank, self._world, self._micro_batch_size = rank, world, micro_batch_size
        self._place, self._workers, self._total_steps = place, workers, total_steps
        self._part: _WindowPart | None = None  # of the window that was read last

    def __iter__(self) -> Iterator[Step]:
        for share in self._shares():
            if isinstance(share.rows, SesameError):
                raise share.rows
            spans = share.plan.spans
            size = self._micro_batch_size or share.rows.rows
            starts = range(0, share.rows.rows, size)
            yield Step(
                step=share.plan.step,
                first_row=spans[0][0],
                next_row=spans[-1][1],
                rows=_count(spans),
                micro_batches=[
                    collate(share.rows.between(start, min(start + size, share.rows.rows)))
                    for start in starts
                ],
            )

    def _shares(self) -> Iterator[_RankRows]:
        if self._workers == 0:
            return (_RankRows(plan, self._read(plan)) for plan in self._plans())
        return iter(
            DataLoader(
                _Shares(self),
                batch_size=None,
                collate_fn=_as_it_is,
                num_workers=self._workers,
                worker_init_fn=_start_worker,
                generator=torch.Generator(),  # otherwise DataLoader draws from torch's global state
            )
        )

    def _plans(self) -> Iterator[_Plan]:
        place = self._place
        step, position, skipped = place.step, place.position, tuple(place.skipped)
        while place.stop is None or step < place.stop:
            spans = next_spans(position, self._schedule.size(step), skipped)
            yield _Plan(step, spans)
            step, position = step + 1, spans[-1][1]

    def _read(self, plan: _Plan) -> Chunk:
        """Return this rank's rows of one step, masked."""
        share = _count(plan.spans) // self._world
        spans = cut_spans(plan.spans, self._rank * share, (self._rank + 1) * share)
        parts, epochs, numbers = [], [], []
        for start, stop in spans:
            for window, part in self._order.windows(start, stop):
                parts.append(self._part_of(window).take(window.picks[part]))
                epochs.append(np.full(part.stop - part.start, window.epoch))
                numbers.append(window.numbers[part])
        rows = concatenate(parts)
        if self._store.static:
            return rows
        return mask_rows(
            rows,
            self._order.seed,
            np.concatenate(epochs),
            np.concatenate(numbers),
            self._vocabulary,
            self._rule_at(plan.step),
        )

    def _rule_at(self, step: int) -> MaskRule:
        return self._rule.after(step / self._total_steps) if self._total_steps else self._rule

    def _part_of(self, window: Window) -> "_WindowPart":
        if self._part is None or self._part.window.start != window.start:
            self._part = _WindowPart(self._store, window)
        return self._part


class _WindowPart:
    """The chunks of a shuffle window that hold this rank's rows; each is read when first needed."""

    def __init__(self, store: ChunkStore, window: Window) -> None:
        self.window, self._store = window, store
        # [chunks + 1] rows of the window before each chunk
        counts = store.rows_per_chunk[window.chunks]
        self._first_rows = np.concatenate([[0], np.cumsum(counts)])
        self._places = np.full(self._first_rows[-1], NOT_READ)  # [rows of the window] in `_rows`
        self._rows: Chunk | None = None  # the chunks that were read, joined in the order of reading

    def take(self, picks: NDArray[np.int64]) -> Chunk:
        """Return the rows at these indices into the window's concatenated chunks."""
        places = self._places[picks]
        if (places == NOT_READ).any():
            missing = picks[places == NOT_READ]
            self._read(np.unique(np.searchsorted(self._first_rows, missing, side="right") - 1))
            places = self._places[picks]
        assert self._rows is not None
        return self._rows.take(places)

    def _read(self, chunks: NDArray[np.int64]) -> None:
        """Read the chunks with these indices in the window, and add their rows to `_rows`."""
        parts = [] if self._rows is None else [self._rows]
        end = sum(part.rows for part in parts)
        for chunk in chunks.tolist():
            parts.append(self._store.read(int(self.window.chunks[chunk])))
            first, last = self._first_rows[chunk : chunk + 2]
            self._places[first:last] = np.arange(end, end + last - first)
            end += parts[-1].rows
        self._rows = concatenate(parts)


class _Shares(IterableDataset[_RankRows]):
    """The rows that one worker process makes: every n-th step, in order."""

    def __init__(self, loader: Loader):
        self._loader = loader

    def __iter__(self) -> Iterator[_RankRows]:
        worker = get_worker_info()
        assert worker is not None
        for turn, plan in enumerate(self._loader._plans()):
            if turn % worker.num_workers == worker.id:
                try:
                    yield _RankRows(plan, self._loader._read(plan))
                except SesameError as error:
                    yield _RankRows(plan, error)
                    return


def _as_it_is(share: Any) -> Any:
    return share


def _start_worker(number: int) -> None:
    """Ignore stop signals in a worker; it ends with the training process.

    A preemption signal reaches every process of a job. If it killed the workers, training would
    fail before it can save its last checkpoint.
    """
    end_with_parent()
    for warning in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
        signal.signal(warning, signal.SIG_IGN)


def _count(spans: Sequence[Span]) -> int:
    return sum(stop - start for start, stop in spans)


class HeldOut:
    """Iterates over this rank's part of the first `rows` held-out rows, with their stored masks.

    Every rank gets an equal number of batches, because a forward pass may be collective. Rows are
    distributed evenly over all batches; a batch is empty only if there are more ranks than rows.
    """

    def __init__(
        self, store: ChunkStore, *, rows: int, micro_batch_size: int, rank: int = 0, world: int = 1
    ):
        assert store.static, f"{store.folder} holds no masks for {store.split}"
        self._store, self._rows = store, min(rows, store.rows)
        self._rank, self._world = rank, world
        self._batches = -(-self._rows // (micro_batch_size * world))

    def __len__(self) -> int:
        return self._batches

    def __iter__(self) -> Iterator[Batch]:
        parts = self._batches * self._world
        for batch in range(self._batches):
            part = batch * self._world + self._rank
            yield collate(
                self._between(part * self._rows // parts, (part + 1) * self._rows // parts)
            )

    def _between(self, start: int, stop: int) -> Chunk:
        firsts = self._store.first_row
        first, last = np.searchsorted(firsts, [start, max(stop - 1, start)], side="right") - 1
        joined = concatenate([self._store.read(number) for number in range(first, last + 1)])
        return joined.between(start - int(firsts[first]), stop - int(firsts[first]))
