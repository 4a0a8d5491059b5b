"""Turn document shards and a tokenizer into example shards.

    texts   tokenize each part of a shard
    pairs   find where random next segments may start, and count these places (pairs=nsp only)
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
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from data_prep.config import ExamplesConfig
from data_prep.corpus.shard_format import ShardPart, named_sources, parts
from data_prep.errors import SesameError
from data_prep.examples.chunks import ChunkWriter
from data_prep.examples.masking import HELD_OUT_MASKS
from data_prep.examples.partners import (
    PartnerSource,
    Table,
    find_openings,
    make_table,
    write_openings,
)
from data_prep.examples.retokenize import Source, check_sources
from data_prep.examples.reuse import Reuse
from data_prep.examples.rows import (
    cut_pairs,
    is_static,
    make_rows,
    mask_rule,
    pair_limit,
    read_chunk,
    read_counts,
    write_rows,
)
from data_prep.examples.segments import Text
from data_prep.examples.statistics import statistics, summary
from data_prep.examples.text import Unit, copies, read_text, write_text
from data_prep.examples.validate import Rules, validate
from data_prep.fields import result_keys
from data_prep.files import write_atomically
from data_prep.tokenizers import Tokenizer
from data_prep.work_units import ArraySlice, WorkUnit, run_unit, run_units, worker_count

SPLITS = ("train", "heldout")


@dataclass(frozen=True)
class TextTask:
    """Tokenize one part of a shard; `sources` are the names of the corpus's sources."""

    part: ShardPart
    tokenizer: Path
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class RowsTask:
    """Find the openings or make the rows of one unit.

    A document takes part in as many duplicates as `text.copies` says: duplicates × weight.
    partners: the unit whose split and duplicate random segments come from; its own, as a rule.
    """

    unit: Unit
    tokenizer: Path
    config: ExamplesConfig
    partners: Unit | None = None


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
    sources = named_sources(shards)
    texts = {
        split: make_texts(found[split], split, tokenizer, pieces, workers, share, sources)
        for split in SPLITS
    }
    if share is not None:
        return {}
    units = {split: _units(texts[split], split, config, pieces) for split in SPLITS}
    partners = _find_partners(units, tokenizer, config, workers)
    every: dict[str, dict[str, Any]] = {}
    for split in SPLITS:
        rows = _make_rows(units[split], partners[split], tokenizer, config, workers)
        rules = Rules(config, _load(tokenizer), mask_rule(config, split))
        reuse = _measure_reuse(texts[split], partners[split], split)
        _merge(rows, split, rules.tokenizer.size, config, out, reuse)
        draws = validate(out, split, rules, reuse)
        made_from = _sources(found[split], rows)
        compared = check_sources(out, split, made_from, tokenizer, config.seed)
        counts = map(read_counts, (*texts[split], *rows))
        every[split] = statistics(counts, config) | {
            "checked": {"rows": draws.rows, **asdict(compared)},
            **({} if reuse is None else {"partners": reuse.figures()}),
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
    sources: tuple[str, ...] = (),
) -> list[Path]:
    """Tokenize a split, one work unit per part; return the folders of the units.

    With a `share`, only its units are made and returned.
    """
    tasks = [
        WorkUnit(Unit(root, split, number).text.name, TextTask(part, tokenizer, sources))
        for number, part in enumerate(found)
    ]
    chosen = tasks if share is None else share.of(tasks)
    return run_units(chosen, make_text, root, workers, f"tokenize {split}")


def make_text(task: TextTask, folder: Path) -> None:
    """Run a `TextTask`: write the tokenized text to `folder`."""
    write_text(task.part, _load(task.tokenizer), folder, task.sources)


def _units(texts: list[Path], split: str, config: ExamplesConfig, root: Path) -> list[list[Unit]]:
    """List the units of a split by duplicate; held-out text has one duplicate."""
    used = [copies(text, config.seed, config.duplicates) for text in texts]
    duplicates = max((int(most.max(initial=0)) for most in used), default=0)
    return [
        [Unit(root, split, part, duplicate) for part in range(len(texts))]
        for duplicate in range(duplicates if split == "train" else 1)
    ]


def _find_partners(
    units: dict[str, list[list[Unit]]], tokenizer: Path, config: ExamplesConfig, workers: int
) -> dict[str, Unit | None]:
    """Find the openings of all units and count them; needed for pairs=nsp only.

    Returns, per split, a unit whose split random segments come from: its own, but the training
    text for held-out text that is all of one document or group. Raises SesameError if the training
    text is.
    """
    if config.pairs != "nsp":
        return dict.fromkeys(SPLITS)
    source: dict[str, Unit | None] = {}
    for split in SPLITS:
        every = [unit for duplicate in units[split] for unit in duplicate]
        tasks = [WorkUnit(unit.openings.name, RowsTask(unit, tokenizer, config)) for unit in every]
        if tasks:
            run_units(tasks, make_openings, every[0].root, workers, f"{split} pairs")
        for duplicate in filter(None, units[split]):
            table = WorkUnit(duplicate[0].table.name, duplicate)
            run_unit(table, write_table, duplicate[0].root)
        has_two = bool(every) and Table.load(every[0].table).group_count > 1
        source[split] = every[0] if has_two else source.get("train")
    if source["train"] is None:
        raise SesameError(
            "examples.pairs=nsp: all training text belongs to one document or group, so a random "
            "next sentence cannot come from another; set corpus.documents or corpus.group_field "
            "so that there are several, or use examples.pairs=sop or none"
        )
    return source


def make_openings(task: RowsTask, folder: Path) -> None:
    """Run a `RowsTask`: write the openings of its random examples to `folder`."""
    text = _read_used(task)
    cuts = cut_pairs(text, task.config, task.unit.duplicate)
    openings = find_openings(text, cuts, task.unit.part)
    write_openings(text, openings, task.unit.part, folder)


def write_table(units: list[Unit], folder: Path) -> None:
    """Count the openings of one duplicate of a split, as `Table`."""
    make_table(units).save(folder)


def _make_rows(
    units: list[list[Unit]],
    partners: Unit | None,
    tokenizer: Path,
    config: ExamplesConfig,
    workers: int,
) -> list[Path]:
    every = [unit for duplicate in units for unit in duplicate]
    tasks = [
        WorkUnit(unit.rows.name, RowsTask(unit, tokenizer, config, partners)) for unit in every
    ]
    if not tasks:
        return []
    return run_units(tasks, make_part, every[0].root, workers, f"{every[0].split} examples")


def make_part(task: RowsTask, folder: Path) -> None:
    """Run a `RowsTask`: write the rows to `folder`."""
    rows = make_rows(
        _read_used(task), task.unit, _load(task.tokenizer), task.config, _partner_source(task)
    )
    write_rows(rows, folder)


def _partner_source(task: RowsTask) -> PartnerSource | None:
    if task.partners is None:
        return None
    unit = task.unit
    is_own = task.partners.split == unit.split
    first = replace(task.partners, duplicate=0)
    own = replace(first, duplicate=unit.duplicate) if is_own else first
    return PartnerSource(
        unit=unit,
        table=Table.load(own.table),
        openings_of=own,
        fallback=Table.load(first.table).spares,
        seed=task.config.seed,
        limit=pair_limit(task.config),
        is_own=is_own,
    )


def _read_used(task: RowsTask) -> Text:
    used = copies(task.unit.text, task.config.seed, task.config.duplicates) > task.unit.duplicate
    return replace(read_text(task.unit.text), is_used=used)


def _measure_reuse(texts: list[Path], partners: Unit | None, split: str) -> Reuse | None:
    """Return a counter of reuse if the split's random segments come from its own text."""
    if partners is None or partners.split != split:
        return None
    return Reuse(1 + max(int(read_text(text).documents.max(initial=-1)) for text in texts))


def _merge(
    rows: list[Path],
    split: str,
    vocab_size: int,
    config: ExamplesConfig,
    out: Path,
    reuse: Reuse | None,
) -> None:
    """Write the rows of all folders, in this order, to the shard files of a split.

    `reuse` counts where their segments come from.
    """
    with ChunkWriter(
        out,
        split,
        shard_size=config.shard_size,
        chunk_rows=config.chunk_rows,
        vocab_size=vocab_size,
        static=is_static(config, split),
    ) as writer:
        for folder in rows:
            chunk = read_chunk(folder)
            writer.add(chunk)
            if reuse is not None:
                reuse.add(chunk)


def _sources(found: list[ShardPart], rows: list[Path]) -> list[Source]:
    """List, per rows folder, its range of rows in the merged split and its part of a shard."""
    sources = []
    first = 0
    for number, folder in enumerate(rows):
        end = first + int(read_counts(folder)["rows"])
        sources.append(Source(found[number % len(found)], folder, first, end))
        first = end
    return sources
