"""The sequence of global batches depends on no rank or worker count, and resumes anywhere."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import fields
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data_prep.errors import SesameError, UsageError
from data_prep.examples.chunks import Chunk, ChunkStore, ChunkWriter
from data_prep.examples.masking import MaskRule, Vocabulary, mask_rows
from pipeline.data.batch import Batch
from pipeline.data.cursor import BatchSchedule, Place
from pipeline.data.loader import HeldOut, Loader, Step
from pipeline.data.order import Order

SIZE = 1000
VOCABULARY = Vocabulary(
    mask=4,
    special=np.arange(SIZE) < 5,
    starts_word=np.ones(SIZE, bool),
    ordinary=np.arange(5, SIZE),
)
RULE = MaskRule()
WORLDS = [1, 2, 3, 4, 6, 8]
BATCH = 24  # divides by all of them


def make_rows(first: int, count: int) -> Chunk:
    """Rows that can be told apart: row n holds [CLS] n in two pieces, filler [SEP] b [SEP]."""
    numbers = np.arange(first, first + count)
    lengths = 8 + numbers % 5
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    tokens = np.full(offsets[-1], 7, np.uint16)
    tokens[offsets[:-1]] = 2
    tokens[offsets[:-1] + 1] = 100 + numbers // 800
    tokens[offsets[:-1] + 2] = 100 + numbers % 800
    tokens[offsets[:-1] + 5] = tokens[offsets[1:] - 1] = 3
    return Chunk(
        tokens=tokens,
        row_examples=np.arange(count + 1, dtype=np.int32),
        example_tokens=offsets,
        second=np.full(count, 6, np.uint16),
        label=(numbers % 2).astype(np.int8),
        coin=np.ones(count, np.int8),
        documents=np.zeros((count, 2), np.uint32),
    )


def make_store(folder: Path, rows: int, chunk_rows: int = 16, static: bool = False) -> ChunkStore:
    folder.mkdir(exist_ok=True)
    with ChunkWriter(
        folder, "train", shard_size=50_000, chunk_rows=chunk_rows, vocab_size=SIZE, static=static
    ) as writer:
        made = make_rows(0, rows)
        if static:
            zeros = np.zeros(rows, np.int64)
            made = mask_rows(made, 0, zeros, np.arange(rows), VOCABULARY, RULE)
        writer.add(made)
    return ChunkStore(folder, "train")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ChunkStore:
    """201 rows in 13 chunks, prime in number: epochs end inside batches."""
    return make_store(tmp_path_factory.mktemp("examples"), 201)


def make_loader(store: ChunkStore, schedule: BatchSchedule | None = None, **options: Any) -> Loader:
    order = Order(store.rows_per_chunk, seed=11, window=4)
    names = [item.name for item in fields(Place)]
    place = Place(**{name: options.pop(name) for name in names if name in options})
    schedule = schedule or BatchSchedule(BATCH)
    return Loader(store, order, VOCABULARY, RULE, schedule, place=place, **options)


def rows_of(batches: list[Batch]) -> list[int]:
    """The numbers of the rows in these batches, masks taken off."""
    numbers = []
    for batch in batches:
        tokens = batch.tokens_N.clone()
        tokens[batch.targets_M] = batch.labels_M
        starts = np.concatenate([[0], np.cumsum(batch.lengths)[:-1]])
        numbers += ((tokens[starts + 1] - 100) * 800 + tokens[starts + 2] - 100).tolist()
    return numbers


def flat(lists: Iterable[list[int]]) -> list[int]:
    return list(chain.from_iterable(lists))


def content(batches: list[Batch]) -> list[Any]:
    """All that a model sees of these batches, joined: independent of how they are cut."""
    bases = np.cumsum([0] + [len(batch.tokens_N) for batch in batches])
    targets = [
        (batch.targets_M + int(base)).tolist() for batch, base in zip(batches, bases, strict=False)
    ]
    names = ("tokens_N", "positions_N", "segments_N", "labels_M", "pair_labels_E")
    joined = [flat(getattr(batch, name).tolist() for batch in batches) for name in names]
    return [*joined, flat(batch.lengths.tolist() for batch in batches), flat(targets)]


def global_batches(
    store: ChunkStore, steps: int, world: int = 1, **options: Any
) -> list[tuple[int, int, int, list[Any]]]:
    """(step, position, rows, content) of every global batch, put together from all ranks."""
    start = options.get("step", 0)
    ranks = [
        list(make_loader(store, rank=rank, world=world, stop=start + steps, **options))
        for rank in range(world)
    ]
    found = []
    for parts in zip(*ranks, strict=True):  # every rank sees the same number of steps
        assert len({(part.step, part.first_row, part.rows) for part in parts}) == 1
        assert len({len(part.micro_batches) for part in parts}) == 1
        joined = [batch for part in parts for batch in part.micro_batches]
        found.append((parts[0].step, parts[0].first_row, parts[0].rows, content(joined)))
    return found


@pytest.fixture(scope="module")
def expected(store: ChunkStore) -> list[tuple[int, int, int, list[Any]]]:
    """Three epochs as one process without workers reads them."""
    return global_batches(store, 26)


def test_an_epoch_misses_and_repeats_nothing(store: ChunkStore) -> None:
    steps = list(make_loader(store, stop=26))
    numbers = [number for step in steps for number in rows_of(step.micro_batches)]
    assert [step.first_row for step in steps] == [BATCH * step for step in range(26)]
    for epoch in range(3):
        assert sorted(numbers[epoch * 201 : (epoch + 1) * 201]) == list(range(201))
    assert numbers[:201] != numbers[201:402]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("micro_batch_size", [None, 1, 2])
def test_ranks_and_micro_batches_change_nothing(
    store: ChunkStore, expected: list[Any], world: int, micro_batch_size: int | None
) -> None:
    assert global_batches(store, 26, world, micro_batch_size=micro_batch_size) == expected


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("workers", [1, 4])
def test_workers_change_nothing(
    store: ChunkStore, expected: list[Any], workers: int, world: int
) -> None:
    assert global_batches(store, 26, world, workers=workers) == expected


def test_workers_leave_torch_randomness_alone(store: ChunkStore) -> None:
    before = torch.get_rng_state()
    list(make_loader(store, stop=2, workers=1))
    assert torch.equal(torch.get_rng_state(), before)


RANK = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import test_loader as here
store = here.ChunkStore(Path(sys.argv[2]), "train")
rank, world = int(sys.argv[3]), int(sys.argv[4])
steps = here.make_loader(store, rank=rank, world=world, stop=26, workers=1)
print(json.dumps([here.rows_of(step.micro_batches) for step in steps]))
"""


def test_real_processes_share_the_batches(store: ChunkStore) -> None:
    world = 2
    here = Path(__file__).parent
    environment = os.environ | {"PYTHONPATH": str(here.parents[2])}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(here), str(store.folder), str(rank), str(world)],
            stdout=subprocess.PIPE,
            env=environment,
        )
        for rank in range(world)
    ]
    outputs = [json.loads(process.communicate(timeout=100)[0]) for process in ranks]
    single = [rows_of(step.micro_batches) for step in make_loader(store, stop=26)]
    assert [left + right for left, right in zip(*outputs, strict=True)] == single


@pytest.mark.parametrize("stop", [1, 7, 8, 9, 17, 25])
@pytest.mark.parametrize(("before", "after"), [(1, 8), (3, 2), (8, 6), (4, 1)])
def test_a_run_goes_on_with_another_number_of_ranks(
    store: ChunkStore, expected: list[Any], stop: int, before: int, after: int
) -> None:
    first = global_batches(store, stop, before)
    position = next_position(store, stop)
    rest = global_batches(store, 26 - stop, after, step=stop, position=position)
    assert first + rest == expected


def next_position(store: ChunkStore, steps: int, **options: Any) -> int:
    *_, last = make_loader(store, stop=options.get("step", 0) + steps, **options)
    return last.next_row


def test_two_resumes_in_one_epoch(store: ChunkStore, expected: list[Any]) -> None:
    first = global_batches(store, 2, 2)
    second = global_batches(store, 3, 8, step=2, position=2 * BATCH, workers=0)
    third = global_batches(store, 21, 3, step=5, position=5 * BATCH)
    assert first + second + third == expected


@pytest.mark.parametrize("world", [1, 2, 3, 6])
def test_a_growing_batch_takes_more_of_the_same_rows(store: ChunkStore, world: int) -> None:
    schedule = BatchSchedule(BATCH, ramp_steps=6)
    found = global_batches(store, 12, world, schedule=schedule)
    assert [rows for _, _, rows, _ in found] == [6, 6, 12, 12, 18, 18] + [24] * 6
    assert [position for _, position, _, _ in found][:4] == [0, 6, 12, 24]
    assert found == global_batches(store, 12, schedule=schedule)
    plain = [rows_of(step.micro_batches) for step in make_loader(store, stop=9)]
    ramped = [rows_of(step.micro_batches) for step in make_loader(store, schedule, stop=12)]
    assert flat(ramped) == flat(plain)


@pytest.mark.parametrize("world", [1, 4])
def test_skipped_positions_are_hopped_over(store: ChunkStore, world: int) -> None:
    skipped = ((30, 50), (60, 61), (190, 250))
    found = global_batches(store, 12, world, skipped=skipped)
    assert found == global_batches(store, 12, skipped=skipped)
    steps = list(make_loader(store, stop=12, skipped=skipped))
    everything = [rows_of(step.micro_batches) for step in make_loader(store, stop=26)]
    kept = [
        number
        for position, number in enumerate(flat(everything))
        if not any(start <= position < stop for start, stop in skipped)
    ]
    assert flat(rows_of(step.micro_batches) for step in steps) == kept[: 12 * BATCH]
    assert all(step.rows == BATCH for step in steps)
    again = make_loader(store, step=5, position=steps[4].next_row, skipped=skipped, stop=12)
    assert [rows_of(step.micro_batches) for step in again] == [
        rows_of(step.micro_batches) for step in steps[5:]
    ]


@pytest.mark.parametrize(
    ("rows", "chunk_rows"),
    [(1, 16), (5, 16), (16 * 7, 16), (16 * 8, 16), (37, 1)],
    ids=["one row", "one chunk", "prime", "balanced", "one row a chunk"],
)
def test_any_number_of_chunks_will_do(tmp_path: Path, rows: int, chunk_rows: int) -> None:
    small = make_store(tmp_path, rows, chunk_rows)
    alone = global_batches(small, 8)
    for world in (2, 8):
        assert global_batches(small, 8, world) == alone
    numbers = flat(rows_of(step.micro_batches) for step in make_loader(small, stop=8))
    for epoch in range(len(numbers) // rows):
        assert sorted(numbers[epoch * rows : (epoch + 1) * rows]) == list(range(rows))


class Simulated:
    """A store of any size whose chunks are made as they are read, and counted."""

    static = False
    vocab_size = SIZE

    def __init__(self, chunks: int):
        self.rows = 16 * chunks
        self.rows_per_chunk = np.full(chunks, 16)
        self.opened: list[int] = []

    def read(self, number: int) -> Chunk:
        self.opened.append(number)
        return make_rows(number * 16 % 500_000, 16)


@pytest.mark.parametrize("step", [10, 10_000_000])
def test_resuming_opens_a_window_however_far_in(step: int) -> None:
    simulated: Any = Simulated(100_000)
    next(iter(make_loader(simulated, step=step, position=step * BATCH)))
    assert len(simulated.opened) <= 2 * 4
    assert len(set(simulated.opened)) == len(simulated.opened)


def test_an_epoch_reads_every_chunk_once() -> None:
    simulated: Any = Simulated(30)
    list(make_loader(simulated, stop=30 * 16 // BATCH))
    assert sorted(simulated.opened) == list(range(30))


def test_masks_change_from_epoch_to_epoch(store: ChunkStore) -> None:
    targets: list[dict[int, list[int]]] = [{}, {}]
    for step in make_loader(store, micro_batch_size=1, stop=17):
        for index, batch in enumerate(step.micro_batches):
            epoch = (step.first_row + index) // 201
            if epoch < 2:
                targets[epoch][rows_of([batch])[0]] = batch.targets_M.tolist()
    assert targets[0].keys() == targets[1].keys()
    changed = sum(targets[0][number] != targets[1][number] for number in targets[0])
    assert changed > 100


@pytest.mark.parametrize("world", [1, 2])
def test_the_mask_rate_goes_from_first_to_last_in_a_straight_line(
    store: ChunkStore, world: int
) -> None:
    rule, steps = MaskRule(rate=0.6, final_rate=0.2), 40
    shares = []
    for step in (0, 20, 39):
        batches = [
            batch
            for rank in range(world)
            for part in Loader(
                store, Order(store.rows_per_chunk, 5, 3), VOCABULARY, rule, BatchSchedule(BATCH),
                rank=rank, world=world, total_steps=steps,
                place=Place(step, BATCH * step, (), step + 1),
            )
            for batch in part.micro_batches
        ]  # fmt: skip
        maskable = sum(len(batch.tokens_N) - 3 * len(batch.lengths) for batch in batches)
        shares.append(sum(len(batch.targets_M) for batch in batches) / maskable)
    assert shares == pytest.approx([0.6, 0.4, 0.21], abs=0.05)


def test_static_masks_are_used_as_they_are(tmp_path: Path) -> None:
    static = make_store(tmp_path, 100, static=True)
    stored = {
        number: chunk.input[low:high].tolist()
        for chunk in map(static.read, range(static.chunks))
        for row, number in enumerate(numbers_of(chunk))
        for low, high in [chunk.target_examples[row : row + 2]]
    }
    for step in make_loader(static, micro_batch_size=1, stop=9):
        for batch in step.micro_batches:
            seen = batch.tokens_N[batch.targets_M].tolist()
            assert seen == stored[rows_of([batch])[0]]


def numbers_of(chunk: Chunk) -> list[int]:
    starts = chunk.example_tokens[:-1]
    high, low = chunk.tokens[starts + 1].astype(int), chunk.tokens[starts + 2].astype(int)
    return ((high - 100) * 800 + low - 100).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_damaged_chunk_stops_the_run_with_its_name(tmp_path: Path, workers: int) -> None:
    damaged = make_store(tmp_path, 400)
    tar = tmp_path / "train-00000.tar"
    content = bytearray(tar.read_bytes())
    content[1000] ^= 1
    tar.write_bytes(bytes(content))
    with pytest.raises(SesameError, match=r"^[^\n]*train-00000\.tar: damaged: chunk 0 [^\n]*$"):
        list(make_loader(damaged, stop=17, workers=workers))


def test_a_batch_that_does_not_divide_is_refused(store: ChunkStore) -> None:
    with pytest.raises(UsageError, match="must divide by the 5 ranks"):
        make_loader(store, world=5)


def test_another_tokenizer_is_refused(store: ChunkStore) -> None:
    other = Vocabulary(4, np.zeros(2000, bool), np.ones(2000, bool), np.arange(5, 2000))
    order = Order(store.rows_per_chunk, seed=0, window=4)
    with pytest.raises(SesameError, match=r"vocabulary of 1000 tokens, but the tokenizer has 2000"):
        Loader(store, order, other, RULE, BatchSchedule(BATCH))


def test_workers_outlive_preemption_warnings(store: ChunkStore) -> None:
    steps = iter(make_loader(store, workers=1))
    next(steps)
    workers = multiprocessing.active_children()
    assert len(workers) == 1
    for warning in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
        os.kill(workers[0].pid or 0, warning)
    assert [step.step for step in islice(steps, 10)] == list(range(1, 11))
    del steps
    workers[0].join(10)
    assert not workers[0].is_alive()


def test_an_endless_loader_goes_on(store: ChunkStore) -> None:
    steps: Iterator[Step] = iter(make_loader(store))
    assert [step.step for step in islice(steps, 100)] == list(range(100))


@pytest.mark.parametrize("world", [1, 2, 3, 8])
@pytest.mark.parametrize("micro_batch_size", [1, 7, 64, 1000])
def test_held_out_rows_are_dealt_once_over_the_ranks(
    tmp_path: Path, world: int, micro_batch_size: int
) -> None:
    held_out = make_store(tmp_path, 100, static=True)
    for limit, wanted in ((60, 60), (1000, 100), (3, 3)):
        ranks = [
            HeldOut(held_out, rows=limit, micro_batch_size=micro_batch_size, rank=rank, world=world)
            for rank in range(world)
        ]
        batches = [list(rank) for rank in ranks]
        assert {len(own) for own in batches} == {len(ranks[0])}
        assert all(len(batch.lengths) <= micro_batch_size for own in batches for batch in own)
        in_order = [batch for dealt in zip(*batches, strict=True) for batch in dealt]
        assert rows_of([batch for batch in in_order if len(batch.lengths)]) == list(range(wanted))
        assert batches[0][0].tokens_N.tolist() == next(iter(ranks[0])).tokens_N.tolist()
