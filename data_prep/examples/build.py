"""Turn document shards and a tokenizer into example shards.

    tokenize  each part of a shard
    pairs     find where random next segments may start, and count these places (pairs=nsp only)
    rows      build pairs, pack and mask: one work unit per part of a shard and duplicate
    write     write all rows to shard files, in corpus order, and check them: one unit per file

At the end a sample is compared with the tokenizer library.

Reads a folder of document shards and a tokenizer folder; writes `train-*.tar`, `heldout-*.tar`
with their indexes and `statistics.json`; with several sources or languages `heldout-strata.json`,
which lists the held-out documents of each. The work units depend on the shards only, so the bytes
do not depend on the number of workers.
Try it: sesame examples 'corpus.paths=[my_texts/]'
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from data_prep.corpus.shard_format import ShardPart, named_sources, parts
from data_prep.corpus.strata import told_apart
from data_prep.errors import SesameError
from data_prep.examples.common_passes import SPLITS, finish, tokenize, write_splits
from data_prep.examples.config import ExamplesConfig
from data_prep.examples.masking import HELD_OUT_MASKS
from data_prep.examples.partners import (
    PartnerSource,
    Table,
    find_openings,
    make_table,
    write_openings,
)
from data_prep.examples.retokenize import Source, check_sources
from data_prep.examples.rows import cut_pairs, make_rows, pair_limit, write_rows
from data_prep.examples.rows_files import read_counts
from data_prep.examples.segments import Text
from data_prep.examples.statistics import statistics, summary
from data_prep.examples.text import HELD_OUT_STRATA, Unit, copies, join_strata, read_text
from data_prep.files import write_atomically
from data_prep.passes import Passes
from data_prep.tokenizers import load_tokenizer
from data_prep.work_units import LocalPool, WorkUnit


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
    passes: Passes | None = None,
) -> dict[str, Any]:
    """Make and check the examples of both splits; return the counts for the manifest.

    passes: who makes the work units; by default `config.workers` processes.
    Raises SesameError if there is no training text, or if it gives no example.
    """
    passes = passes or Passes.below(out, LocalPool.of(config.workers))
    found = {split: parts(shards, split) for split in SPLITS}
    if not found["train"]:
        raise SesameError(f"{shards}: there is no training text; add documents to the corpus")
    divided = told_apart(shards)
    texts = tokenize(found, tokenizer, config, passes, named_sources(shards), divided)
    counted = {split: [read_counts(text) for text in texts[split]] for split in SPLITS}
    units = {split: _units(counted[split], split, passes.root) for split in SPLITS}
    partners = _find_partners(units, tokenizer, config, passes)
    rows = _make_rows(units, partners, tokenizer, config, passes)
    documents = {split: _documents(counted[split], partners[split], split) for split in SPLITS}
    written = write_splits(rows, documents, tokenizer, config, passes, out)
    every: dict[str, dict[str, Any]] = {}
    for split in SPLITS:
        made_from = _sources(found[split], rows[split])
        compared = check_sources(out, split, made_from, tokenizer, config.seed)
        counts = statistics([*counted[split], *map(read_counts, rows[split])], config)
        draws, reuse = written[split].draws, written[split].reuse
        every[split] = counts | {
            "checked": {"rows": draws.rows, **asdict(compared)},
            **({} if reuse is None else {"partners": reuse.figures()}),
        }
    if every["train"]["rows"] == 0:
        raise SesameError(f"{shards}: the training text gives no example; add text to the corpus")
    if divided:
        strata = join_strata(texts["heldout"])
        write_atomically(out / HELD_OUT_STRATA, json.dumps(strata) + "\n")
    masks = {"heldout_masks": asdict(HELD_OUT_MASKS)} if config.masks_differ else {}
    finish({**every, **masks}, config, passes, out)
    return {split: summary(every[split]) for split in SPLITS}


def _units(counted: Sequence[Mapping[str, Any]], split: str, root: Path) -> list[list[Unit]]:
    """List the units of a split by duplicate; held-out text has one duplicate."""
    duplicates = max((counts["most_copies"] for counts in counted), default=0)
    return [
        [Unit(root, split, part, duplicate) for part in range(len(counted))]
        for duplicate in range(duplicates if split == "train" else 1)
    ]


def _find_partners(
    units: Mapping[str, list[list[Unit]]], tokenizer: Path, config: ExamplesConfig, passes: Passes
) -> dict[str, Unit | None]:
    """Find the openings of all units and count them; needed for pairs=nsp only.

    Returns, per split, a unit whose split random segments come from: its own, but the training
    text for held-out text that is all of one document or group. Raises SesameError if the training
    text is.
    """
    if config.pairs != "nsp":
        return dict.fromkeys(SPLITS)
    tasks = [
        WorkUnit(unit.openings.name, RowsTask(unit, tokenizer, config)) for unit in _every(units)
    ]
    passes.run("pairs", tasks, make_openings)
    source: dict[str, Unit | None] = {}
    for split in SPLITS:
        for duplicate in filter(None, units[split]):
            passes.merge(duplicate[0].table.name, partial(write_table, units=duplicate))
        first = next((unit for duplicate in units[split] for unit in duplicate), None)
        has_two = first is not None and Table.load(first.table).group_count > 1
        source[split] = first if has_two else source.get("train")
    if source["train"] is None:
        raise SesameError(
            "examples.pairs=nsp: all training text belongs to one document or group, so a random "
            "next sentence cannot come from another; set corpus.documents or corpus.group_field "
            "so that there are several, or use examples.pairs=sop or none"
        )
    return source


def _every(units: Mapping[str, list[list[Unit]]]) -> list[Unit]:
    return [unit for split in SPLITS for duplicate in units[split] for unit in duplicate]


def make_openings(task: RowsTask, folder: Path) -> None:
    """Run a `RowsTask`: write the openings of its random examples to `folder`."""
    text = _read_used(task)
    cuts = cut_pairs(text, task.config, task.unit.duplicate)
    openings = find_openings(text, cuts, task.unit.part)
    write_openings(text, openings, task.unit.part, folder)


def write_table(_: None, folder: Path, units: Sequence[Unit]) -> None:
    """Count the openings of one duplicate of a split, as `Table`."""
    make_table(units).save(folder)


def _make_rows(
    units: Mapping[str, list[list[Unit]]],
    partners: Mapping[str, Unit | None],
    tokenizer: Path,
    config: ExamplesConfig,
    passes: Passes,
) -> dict[str, list[Path]]:
    """Make the rows of all units; return the rows folders by split, duplicate after duplicate."""
    tasks = [
        WorkUnit(unit.rows.name, RowsTask(unit, tokenizer, config, partners[unit.split]))
        for unit in _every(units)
    ]
    passes.run("rows", tasks, make_part)
    return {
        split: [unit.rows for duplicate in units[split] for unit in duplicate] for split in SPLITS
    }


def make_part(task: RowsTask, folder: Path) -> None:
    """Run a `RowsTask`: write the rows to `folder`."""
    rows = make_rows(
        _read_used(task),
        task.unit,
        load_tokenizer(task.tokenizer),
        task.config,
        _partner_source(task),
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


def _documents(
    counted: Sequence[Mapping[str, Any]], partners: Unit | None, split: str
) -> int | None:
    """Return the number of documents if the split's random segments come from its own text."""
    if partners is None or partners.split != split:
        return None
    return max(int(counts["documents"]) for counts in counted)


def _sources(found: list[ShardPart], rows: list[Path]) -> list[Source]:
    """List, per rows folder, its range of rows in the merged split and its part of a shard."""
    sources = []
    first = 0
    for number, folder in enumerate(rows):
        end = first + int(read_counts(folder)["rows"])
        sources.append(Source(found[number % len(found)], folder, first, end))
        first = end
    return sources
