"""Reading by hundreds of ranks: a rank reads only chunks with its own rows, through few opens."""

import os
from pathlib import Path
from typing import NamedTuple

import pytest

from data_prep.examples.chunks import ChunkStore, ChunkWriter
from pipeline.data.cursor import BatchSchedule, Place
from pipeline.data.loader import Loader, Step
from pipeline.data.order import Order
from tests.pipeline.data.test_loader import RULE, SIZE, VOCABULARY, make_rows, rows_of

CHUNK_ROWS, CHUNKS, WINDOW = 256, 256, 32  # rows per chunk and window as in training
RANKS = (8, 64, 256, 1024)
STEPS = {256: 64, 4_096: 6, 65_536: 3}  # by global batch: about two shuffle windows, or more


class Reads(NamedTuple):
    """One rank's reading over all its steps."""

    opens: int
    bytes: int
    chunks: list[int]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ChunkStore:
    """65,536 rows in 256 chunks, in about 30 tars."""
    folder = tmp_path_factory.mktemp("examples")
    with ChunkWriter(
        folder, "train", shard_size=200_000, chunk_rows=CHUNK_ROWS, vocab_size=SIZE, static=False
    ) as writer:
        writer.add(make_rows(0, CHUNK_ROWS * CHUNKS))
    made = ChunkStore(folder, "train")
    assert made.chunks == CHUNKS
    return made


class Counter:
    """Counts what a process opens and reads through `data_prep.examples.chunks`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._open, self._pread, self._read = os.open, os.pread, ChunkStore.read
        self.opens, self.bytes, self.chunks = 0, 0, list[int]()
        monkeypatch.setattr("data_prep.examples.chunks.os.open", self.open)
        monkeypatch.setattr("data_prep.examples.chunks.os.pread", self.pread)
        monkeypatch.setattr(ChunkStore, "read", lambda store, number: self.read(store, number))

    def open(self, path: Path, flags: int) -> int:
        self.opens += 1
        return self._open(path, flags)

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        content = self._pread(descriptor, size, offset)
        self.bytes += len(content)
        return content

    def read(self, store: ChunkStore, number: int) -> object:
        self.chunks.append(number)
        return self._read(store, number)

    def rank(self, folder: Path, rank: int, world: int, batch: int) -> Reads:
        """Read the steps of one rank, as a new process would."""
        store = ChunkStore(folder, "train")
        order = Order(store.rows_per_chunk, seed=3, window=WINDOW)
        self.opens, self.bytes, self.chunks = 0, 0, []
        loader = Loader(
            store, order, VOCABULARY, RULE, BatchSchedule(batch),
            rank=rank, world=world, place=Place(stop=STEPS[batch]),
        )  # fmt: skip
        rows = sum(len(each.lengths) for step in loader for each in step.micro_batches)
        assert rows == STEPS[batch] * batch // world
        return Reads(self.opens, self.bytes, self.chunks)


def chunks_with_rows(store: ChunkStore, rank: int, world: int, batch: int) -> set[int]:
    """The chunks that hold a row of this rank, by the order alone."""
    order = Order(store.rows_per_chunk, seed=3, window=WINDOW)
    share = batch // world
    found: set[int] = set()
    for step in range(STEPS[batch]):
        found |= set(order.rows(step * batch + rank * share, share)[1].tolist())
    return found


@pytest.mark.parametrize("batch", STEPS)
def test_opens_and_bytes_of_a_rank_do_not_grow_with_the_ranks(
    store: ChunkStore, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    tars = len(list(store.folder.glob("*.tar")))
    count = Counter(monkeypatch)
    most: list[int] = []
    for world in (world for world in RANKS if world <= batch):
        reads = {rank: count.rank(store.folder, rank, world, batch) for rank in (0, world - 1)}
        for rank, read in reads.items():
            assert set(read.chunks) == chunks_with_rows(store, rank, world, batch)
            assert read.opens <= tars
        most.append(max(read.bytes for read in reads.values()))
    assert most == sorted(most, reverse=True)
    assert most[-1] < most[0]


@pytest.mark.parametrize("world", [64, 256])
def test_rows_and_counts_of_all_ranks_are_those_of_the_global_batch(
    store: ChunkStore, world: int
) -> None:
    """With a growing batch; the counts are what losses are divided by."""
    schedule, place = BatchSchedule(1024, ramp_steps=3), Place(stop=4)

    def steps(rank: int, world: int) -> list[Step]:
        order = Order(store.rows_per_chunk, seed=3, window=WINDOW)
        loader = Loader(
            store, order, VOCABULARY, RULE, schedule, rank=rank, world=world, place=place
        )
        return list(loader)

    alone = steps(0, 1)
    assert [step.rows for step in alone] == [256, 512, 768, 1024]
    ranks = [steps(rank, world) for rank in range(world)]
    for number, expected in enumerate(alone):
        parts = [rank[number] for rank in ranks]
        assert {(part.first_row, part.rows) for part in parts} == {
            (expected.first_row, expected.rows)
        }
        batches = [batch for part in parts for batch in part.micro_batches]
        assert rows_of(batches) == rows_of(list(expected.micro_batches))
        (whole,) = expected.micro_batches
        assert sum(len(batch.labels_M) for batch in batches) == len(whole.labels_M)
        assert sum(len(batch.tokens_N) for batch in batches) == len(whole.tokens_N)
