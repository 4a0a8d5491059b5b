"""Turn document shards and a tokenizer into example shards.

    texts   tokenize each part of a shard
    pool    sample sentences that random next segments are drawn from (pairs=nsp only)
    rows    build pairs, pack and mask: one work unit per part of a shard and duplicate
    merge   write all rows to shard files, in corpus order
    check   validate the written rows and compare a sample with the tokenizer library

Reads a folder of document shards and a tokenizer folder; writes `train-*.tar`, `heldout-*.tar`
with their indexes and `statistics.json`. The work units depend on the shards only, so the bytes do
not depend on the number of workers.
Try it: sesame examples 'corpus.paths=[my_texts/]'
"""

import json
import os
import shutil
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from data_prep.config import ExamplesConfig
from data_prep.corpus.shard_format import ShardPart, parts
from data_prep.errors import SesameError
from data_prep.examples.chunks import ChunkWriter
from data_prep.examples.masking import HELD_OUT_MASKS
from data_prep.examples.pool import group_count, read_pool, write_pool
from data_prep.examples.retokenize import Source, check_sources
from data_prep.examples.rows import (
    is_static,
    make_rows,
    mask_rule,
    read_chunk,
    read_counts,
    write_rows,
)
from data_prep.examples.statistics import statistics, summary
from data_prep.examples.text import copies, read_text, write_text
from data_prep.examples.validate import Rules, validate
from data_prep.fields import result_keys
from data_prep.files import write_atomically
from data_prep.tokenizers import Tokenizer
from data_prep.work_units import ArraySlice, WorkUnit, run_unit, run_units, worker_count

SPLITS = ("train", "heldout")


@dataclass(frozen=True)
class TextTask:
    """Tokenize one part of a shard."""

    part: ShardPart
    tokenizer: Path


@dataclass(frozen=True)
class PoolTask:
    """Sample the pool of a split from its tokenized texts."""

    texts: list[Path]
    seed: int


@dataclass(frozen=True)
class RowsTask:
    """Make the rows of one part of a shard, for one duplicate of the corpus.

    A document takes part in as many duplicates as `text.copies` says: duplicates × weight.
    """

    text: Path
    pool: Path | None
    tokenizer: Path
    config: ExamplesConfig
    split: str
    part: int
    duplicate: int


def build(
    shards: Path,
    tokenizer: Path,
    out: Path,
    config: ExamplesConfig,
    share: ArraySlice | None = None,
) -> dict[str, Any]:
    """Make and check the examples of both splits; return the counts for the manifest.

    share: only tokenize the work units of this array slice and return {}; a later call without a
        share reuses them and finishes the stage.
    Raises SesameError if there is no training text, or if it gives no example.
    """
    pieces, old = clear_leftovers(out)
    workers = worker_count(config.workers)
    found = {split: parts(shards, split) for split in SPLITS}
    if not found["train"]:
        raise SesameError(f"{shards}: there is no training text; add documents to the corpus")
    texts = {
        split: make_texts(found[split], split, tokenizer, pieces, workers, share)
        for split in SPLITS
    }
    if share is not None:
        return {}
    pools = _make_pools(texts, config, pieces)
    every: dict[str, dict[str, Any]] = {}
    for split in SPLITS:
        rows = _make_rows(texts[split], pools[split], tokenizer, config, split, pieces, workers)
        rules = Rules(config, _load(tokenizer), mask_rule(config, split))
        _merge(rows, split, rules.tokenizer.size, config, out)
        sources = _sources(found[split], rows)
        draws = validate(out, split, rules)
        compared = check_sources(out, split, sources, tokenizer, config.seed)
        counts = map(read_counts, (*texts[split], *rows))
        every[split] = statistics(counts, config) | {
            "checked": {"rows": draws.rows, **asdict(compared)}
        }
    if every["train"]["rows"] == 0:
        raise SesameError(f"{shards}: the training text gives no example; add text to the corpus")
    content = {"examples": result_keys(config), **every}
    if config.masks_differ:
        content["heldout_masks"] = asdict(HELD_OUT_MASKS)
    write_atomically(out / "statistics.json", json.dumps(content, indent=1) + "\n")
    # Rename before removing: if we are killed here, no half-removed unit looks complete.
    os.replace(pieces, old)
    shutil.rmtree(old)
    return {split: summary(every[split]) for split in SPLITS}


def clear_leftovers(out: Path) -> tuple[Path, Path]:
    """Remove the temporary files of a killed run.

    Returns the folder of the work units, and the name it takes while it is removed.
    """
    pieces, old = out / ".pieces", out / ".pieces.old"
    shutil.rmtree(old, ignore_errors=True)
    for leftover in (*out.glob(".*.tar*.tmp"), *out.glob(".statistics.json*.tmp")):
        leftover.unlink(missing_ok=True)  # the tasks of an array run this at the same time
    return pieces, old


@lru_cache(maxsize=1)
def _load(folder: Path) -> Tokenizer:
    """Load a tokenizer once per process: a worker makes many units with the same one."""
    return Tokenizer.load(folder)


def make_texts(
    found: list[ShardPart],
    split: str,
    tokenizer: Path,
    root: Path,
    workers: int,
    share: ArraySlice | None,
) -> list[Path]:
    """Tokenize a split, one work unit per part; return the folders of the units.

    With a `share`, only its units are made and returned.
    """
    tasks = [
        WorkUnit(f"text-{split}-{number:06d}", TextTask(part, tokenizer))
        for number, part in enumerate(found)
    ]
    chosen = tasks if share is None else share.of(tasks)
    return run_units(chosen, make_text, root, workers, f"tokenize {split}")


def make_text(task: TextTask, folder: Path) -> None:
    """Run a `TextTask`: write the tokenized text to `folder`."""
    write_text(task.part, _load(task.tokenizer), folder)


def _make_pools(
    texts: dict[str, list[Path]], config: ExamplesConfig, root: Path
) -> dict[str, Path | None]:
    """Make the pool of each split, or None unless pairs=nsp.

    A held-out split with fewer than two documents or groups uses the training pool. Raises
    SesameError if the training split has fewer than two.
    """
    pools: dict[str, Path | None] = dict.fromkeys(SPLITS)
    if config.pairs != "nsp":
        return pools
    counts = dict.fromkeys(SPLITS, 0)
    for split in SPLITS:
        if texts[split]:
            piece = WorkUnit(f"pool-{split}", PoolTask(texts[split], config.seed))
            run_unit(piece, make_pool, root)
            pools[split] = root / piece.name
            counts[split] = group_count(root / piece.name)
    if counts["train"] < 2:
        raise SesameError(
            "examples.pairs=nsp: all training text belongs to one document or group, so a random "
            "next sentence cannot come from another; set corpus.documents or corpus.group_field "
            "so that there are several, or use examples.pairs=sop or none"
        )
    if counts["heldout"] < 2:
        pools["heldout"] = pools["train"]
    return pools


def make_pool(task: PoolTask, folder: Path) -> None:
    """Run a `PoolTask`: write the pool to `folder`."""
    write_pool(task.texts, task.seed, folder)


def _make_rows(
    texts: list[Path],
    pool: Path | None,
    tokenizer: Path,
    config: ExamplesConfig,
    split: str,
    root: Path,
    workers: int,
) -> list[Path]:
    used = [copies(text, config.seed, config.duplicates) for text in texts]
    duplicates = max((int(most.max(initial=0)) for most in used), default=0)
    tasks = [
        WorkUnit(
            f"rows-{split}-{duplicate:03d}-{part:06d}",
            RowsTask(text, pool, tokenizer, config, split, part, duplicate),
        )
        for duplicate in range(duplicates if split == "train" else 1)
        for part, text in enumerate(texts)
    ]
    return run_units(tasks, make_part, root, workers, f"{split} examples")


def make_part(task: RowsTask, folder: Path) -> None:
    """Run a `RowsTask`: write the rows to `folder`."""
    rows = make_rows(
        read_text(task.text),
        None if task.pool is None else read_pool(task.pool),
        _load(task.tokenizer),
        task.config,
        is_used=copies(task.text, task.config.seed, task.config.duplicates) > task.duplicate,
        split=task.split,
        part=task.part,
        duplicate=task.duplicate,
    )
    write_rows(rows, folder)


def _merge(
    rows: list[Path], split: str, vocab_size: int, config: ExamplesConfig, out: Path
) -> None:
    """Write the rows of all folders, in this order, to the shard files of a split."""
    with ChunkWriter(
        out,
        split,
        shard_size=config.shard_size,
        chunk_rows=config.chunk_rows,
        vocab_size=vocab_size,
        static=is_static(config, split),
    ) as writer:
        for folder in rows:
            writer.add(read_chunk(folder))


def _sources(found: list[ShardPart], rows: list[Path]) -> list[Source]:
    """List, per rows folder, its range of rows in the merged split and its part of a shard."""
    sources = []
    first = 0
    for number, folder in enumerate(rows):
        end = first + int(read_counts(folder)["rows"])
        sources.append(Source(found[number % len(found)], folder, first, end))
        first = end
    return sources
