"""Turn raw text into document shards, pass after pass over the text.

    expand  one work unit per large file that could not be divided (data_prep.corpus.expand)
    clean   one work unit per part of the corpus (data_prep.corpus.clean)
    sign_*, match_*  find repeats: units per group of clean files, then per bucket of signatures
            (data_prep.corpus.repeats)
    place   one work unit per group: which sections survive (data_prep.corpus.placement)
    select  a merge: document numbers, held-out sections, shard files (data_prep.corpus.select)
    write   one work unit per shard file (data_prep.corpus.write)

The work units depend on the inputs only, so the output does not depend on the number of workers.
Reads the user's files; writes `train-*.tar`, `heldout-*.tar`, their indexes and `statistics.json`.
Memory does not grow with the corpus: each worker holds one document; the selection holds the tables
of one clean file (16 MB of clean text) and one bucket of signatures.
Try it: sesame shard 'corpus.paths=[my_texts/]'
"""

import functools
import json
import logging
from collections import Counter
from pathlib import Path
from typing import Any

from data_prep.config import CorpusConfig
from data_prep.corpus.cache import PieceCache
from data_prep.corpus.clean import clean_corpus, plan_cleaning, unit_bytes
from data_prep.corpus.clean_files import list_clean_files
from data_prep.corpus.dropped import move_dropped, source_names
from data_prep.corpus.expand import expand_files
from data_prep.corpus.matching import group_files
from data_prep.corpus.placement import place_group
from data_prep.corpus.repeats import find_repeats, repeat_passes
from data_prep.corpus.select import Plan, add_tallies, load_plan, select_documents
from data_prep.corpus.write import write_shards
from data_prep.files import write_atomically
from data_prep.passes import Passes
from data_prep.progress import console
from data_prep.reading.sources import Survey, describe_unread, survey
from data_prep.work_units import LocalPool, WorkUnit

log = logging.getLogger(__name__)


def make_shards(
    config: CorpusConfig,
    out: Path,
    piece_bytes: int | None = None,
    cache: PieceCache | None = None,
    passes: Passes | None = None,
    found: Survey | None = None,
) -> dict[str, Any]:
    """Make the shards below `out` and return the counts for the manifest.

    piece_bytes: raw text per work unit of the clean pass; it follows from the corpus if None.
    passes: who makes the work units; by default `config.workers` processes.
    found: the corpus as it was fingerprinted; surveyed here if None. If a file has changed since
        then, a SesameError is raised before anything is written or cached.
    """
    passes = passes or Passes.below(out, LocalPool.of(config.workers))
    found = found or survey(config.paths, config.sources)
    for line in describe_unread(found.unread):
        console.print(f"shard: {line}", markup=False)
    size = piece_bytes or unit_bytes(found.files)
    divisible = expand_files(found.files, config, size, passes)
    tasks = plan_cleaning(divisible, config, size, cache)
    cleaned = clean_corpus(tasks, config, cache, passes)
    for file in found.files:
        file.refuse_change()

    add_tallies(cleaned, config)  # stops here, before hours of comparing, if nothing is left
    files = list_clean_files(cleaned)
    groups = group_files(files)
    repeats = find_repeats(groups, config, passes)
    place = functools.partial(place_group, repeats=repeats, sources=source_names(config))
    units = [WorkUnit(f"place-{group.number:05d}", group) for group in groups]
    placed = passes.run("place", units, place)
    select = functools.partial(select_documents, config=config, cleaned=cleaned, placed=placed)
    selected = passes.merge("select", select)
    plan = load_plan(selected, placed, config.strict)
    _warn(plan)
    write_shards(plan, files, passes, out)
    write_atomically(out / "statistics.json", json.dumps(plan.statistics, indent=1) + "\n")
    move_dropped(selected, out)
    if cache is not None:
        for folder, task in zip(cleaned, tasks, strict=True):
            cache.keep(str(task.key), folder)
        cache.trim()
    passes.remove()
    return _count_files(found) | plan.counts | _count_unread(found)


def shard_passes(config: CorpusConfig) -> tuple[str, ...]:
    """Return the names of all passes, in order."""
    return ("clean", *repeat_passes(config), "place", "write")


def _warn(plan: Plan) -> None:
    for file_name, place, reason in plan.tally.notes:
        log.warning("%s, %s: %s", file_name, place, reason)
    if plan.counts["sections"]["heldout"] == 0:
        log.warning("nothing is held out: too little text, or copies or groups of over a tenth")


def _count_files(found: Survey) -> dict[str, Any]:
    empty = sum(file.size == 0 for file in found.files)
    return {"files": len(found.files), "empty_files": empty}


def _count_unread(found: Survey) -> dict[str, Any]:
    if not found.unread:
        return {}
    return {"unread_files": dict(sorted(Counter(found.unread.values()).items()))}
