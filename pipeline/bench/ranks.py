"""`sesame bench ranks`: reading and checkpoints of one rank among many, without the others.

Reading: files opened, and bytes read per step, by the rank of a simulated group that reads most.
Checkpoints of `bert_large`: the largest part that a rank copies to the CPU, the seconds for which
training waits for that copy, and the seconds in which it is written and hashed behind training.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from data_prep.examples.chunks import Chunk, ChunkStore, ChunkWriter
from data_prep.examples.masking import MaskRule, Vocabulary
from pipeline.bench.figures import Figure
from pipeline.config.compose import compose_config
from pipeline.config.schema import Config

RANKS = (8, 64, 256, 1024)
STEPS = {256: 64, 4_096: 8, 65_536: 4}  # by global batch; 64 steps of 256 are two windows
CHUNK_ROWS, CHUNKS, WINDOW, LENGTH, WORDS = 256, 512, 32, 128, 30_000
CHECKPOINT_RANKS = (1, 8, 64, 256)


def measure(config: Config) -> list[Figure]:
    """Return all figures. `config` names no file that is read here."""
    with tempfile.TemporaryDirectory() as folder:
        return [*_reading(Path(folder)), *_checkpoints(Path(folder))]


def _reading(folder: Path) -> Iterator[Figure]:
    _write_rows(folder)
    for batch, steps in STEPS.items():
        for world in (world for world in RANKS if world <= batch):
            counts = [_read(folder, rank, world, batch, steps) for rank in (0, world - 1)]
            opens, size = max(count[0] for count in counts), max(count[1] for count in counts)
            name = f"{world:,} ranks, batch {batch:,}"
            yield Figure(f"{name}: files opened", opens, f"in {steps} steps")
            yield Figure(f"{name}: read", size / steps / 1e3, "KB per rank and step")


def _write_rows(folder: Path) -> None:
    tokens = np.random.default_rng(0).integers(5, WORDS, CHUNK_ROWS * LENGTH).astype("<u2")
    rows = Chunk(
        tokens=tokens,
        row_examples=np.arange(CHUNK_ROWS + 1, dtype="<i4"),
        example_tokens=np.arange(0, len(tokens) + 1, LENGTH, dtype="<i4"),
        second=np.full(CHUNK_ROWS, LENGTH // 2, "<u2"),
        label=np.zeros(CHUNK_ROWS, "|i1"),
        coin=np.ones(CHUNK_ROWS, "|i1"),
        documents=np.zeros((CHUNK_ROWS, 2), "<u4"),
    )
    with ChunkWriter(
        folder, "train", shard_size=1 << 20, chunk_rows=CHUNK_ROWS, vocab_size=WORDS, static=False
    ) as writer:
        for _ in range(CHUNKS):
            writer.append(rows)


def _read(folder: Path, rank: int, world: int, batch: int, steps: int) -> tuple[int, int]:
    """Read the first steps of a rank as a new process would; return its opens and bytes."""
    from pipeline.data.cursor import BatchSchedule, Place
    from pipeline.data.loader import Loader
    from pipeline.data.order import Order

    store = ChunkStore(folder, "train")
    words = np.arange(WORDS)
    vocabulary = Vocabulary(4, words < 5, np.ones(WORDS, bool), words[5:])
    loader = Loader(
        store, Order(store.rows_per_chunk, 0, WINDOW), vocabulary, MaskRule(), BatchSchedule(batch),
        rank=rank, world=world, place=Place(stop=steps),
    )  # fmt: skip
    with _counted() as count:
        for _ in loader:
            pass
    return count.opens, count.bytes


@contextmanager
def _counted() -> Iterator[SimpleNamespace]:
    """Count what this process opens and reads by descriptor, inside the `with` block."""
    count, before = SimpleNamespace(opens=0, bytes=0), (os.open, os.pread)

    def count_open(*arguments: Any) -> int:
        count.opens += 1
        return before[0](*arguments)

    def count_pread(*arguments: Any) -> bytes:
        content = before[1](*arguments)
        count.bytes += len(content)
        return content

    os.open, os.pread = count_open, count_pread  # type: ignore[assignment]
    try:
        yield count
    finally:
        os.open, os.pread = before


def _checkpoints(folder: Path) -> Iterator[Figure]:
    import torch

    from pipeline.data.cursor import Cursor, Identity
    from pipeline.models.registry import family_of
    from pipeline.training.checkpoint import TrainingState
    from pipeline.training.parameter_state import owners
    from pipeline.training.saving import copy_part, write_files
    from pipeline.training.whole_engines import ReplicatedEngine

    config = compose_config(["experiment=bert_large"])
    network, _ = family_of(config.model).build(
        config.model, WORDS, rows=1, seed=0, checkpoint_activations=False
    )
    sizes = [part.numel() for part in network.parameters()]
    state = TrainingState(Cursor(0, 0, (), Identity("", "", 0, WINDOW, 1, 0)))

    class OneOf(ReplicatedEngine):
        """One rank of a group whose others do not run."""

        rank, ranks = 0, 1

    engine: Any = OneOf()
    shapes = {name: part.shape for name, part in network.named_parameters()}
    engine._lightning_module = SimpleNamespace(model=network, shapes=shapes)
    engine._optimizers = [torch.optim.AdamW(network.parameters())]
    engine.prepare()
    for ranks in CHECKPOINT_RANKS:
        saved_by = owners(sizes, ranks)
        shares = [0] * ranks
        for size, owner in zip(sizes, saved_by, strict=True):
            shares[owner] += size
        OneOf.rank, OneOf.ranks = shares.index(max(shares)), ranks
        started = time.monotonic()
        part = copy_part(engine, state, None)
        copied = time.monotonic()
        size = sum(
            tensor.numel() * tensor.element_size()
            for tensors in part.files.values()
            for tensor in tensors.values()
        )
        write_files(folder, part.files)
        written = time.monotonic()
        for path in folder.glob("*.safetensors"):
            path.unlink()
        name = f"bert_large, {ranks:,} ranks: checkpoint"
        yield Figure(f"{name}, largest part", size / 1e6, "MB of host memory")
        yield Figure(f"{name}, training waits", copied - started, "s")
        yield Figure(f"{name}, written behind", written - copied, "s")
