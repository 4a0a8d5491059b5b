"""The merge between placing and writing: every decision that needs the whole corpus.

It numbers the documents, chooses the held-out sections and assigns sections to shard files. It
reads the section tables that the place pass wrote, one clean file at a time, never text, and
writes `plan.json` and `.dropped.json` (a sample of dropped documents).
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.config import CorpusConfig
from data_prep.corpus.deal import Shard, deal_sections
from data_prep.corpus.decontamination import Benchmarks
from data_prep.corpus.diagnosis import refuse_wrong_keys
from data_prep.corpus.dropped import join_dropped
from data_prep.corpus.groups import SectionGroups, count_groups
from data_prep.corpus.mixture import source_weights
from data_prep.corpus.placement import Home, Placement, choose_heldout, find_homes, place_all
from data_prep.corpus.strata import count_strata
from data_prep.reading.tally import Tally

REPEATS = ("duplicate", "near_duplicate", "duplicate_paragraphs")  # reasons to drop a document


@dataclass(frozen=True)
class Plan:
    """The result of the select pass, as `load_plan` reads it."""

    placement: Placement
    shards: list[Shard]
    weights: list[float]  # per source: expected copies of a document in training
    tally: Tally
    counts: dict[str, Any]
    statistics: dict[str, Any]


def select_documents(
    _: None, folder: Path, config: CorpusConfig, cleaned: list[Path], placed: list[Path]
) -> None:
    """Make all decisions that need the whole corpus and write them to `folder`.

    cleaned, placed: the folders of the clean and the place pass.
    Raises SesameError if strict and a document was damaged, if a named field is in no record, or
    if no document is left.
    """
    tally = add_tallies(cleaned, config)
    join_dropped([*cleaned, *placed], folder)
    homes, dropped = find_homes(placed)
    repeats = {name: dropped[name] for name in REPEATS if dropped[name]}
    tally.dropped.update(repeats)
    placement = Placement(homes, _count_sections(homes), heldout_limit=0)
    placement = replace(placement, heldout_limit=choose_heldout(placement))
    names = sorted(config.sources)
    sizes = dict(zip(names, count_source_bytes(placement, len(names)), strict=True))
    weights = source_weights(sizes, config.weights, config.temperature)
    shards, counts, statistics = deal_sections(placement, config.shard_size)
    counts = {
        "documents": _document_counts(tally),
        "paragraphs": _paragraph_counts(dropped),
        **counts,
    }
    if config.group_field is not None:
        counts["groups"] = count_groups(partial(_section_groups, placement), config.group_field)
    if config.redaction_symbols:
        counts["redacted"] = tally.as_json()["redacted"]
    if benchmarks := Benchmarks.of(config):
        counts["benchmarks"] = benchmarks.counts()
    if tally.languages:
        counts["languages"] = tally.as_json()["languages"]
    if names:
        counts["sources"] = {
            name: {"bytes": sizes[name], "weight": weights[name]} for name in names
        }
    counts |= count_strata(tally, dropped, names)
    plan = {
        "heldout_limit": placement.heldout_limit,
        "shards": [asdict(shard) for shard in shards],
        "weights": [weights[name] for name in names] or [1.0],
        "tally": tally.as_json(),
        "counts": counts,
        "statistics": {**counts, **statistics, "damaged": tally.as_json()["notes"]},
    }
    (folder / "plan.json").write_text(json.dumps(plan))


def _paragraph_counts(counted: Counter[str]) -> dict[str, Any]:
    dropped = {
        "document": counted["paragraphs_of_dropped"],
        "duplicate": counted["repeated_paragraphs"],
    }
    return {
        "read": counted["paragraphs"],
        "kept": counted["paragraphs"] - sum(dropped.values()),
        "dropped": {name: count for name, count in dropped.items() if count},
    }


def add_tallies(cleaned: list[Path], config: CorpusConfig) -> Tally:
    """Add up what the clean pass counted; raises SesameError as `select_documents` does."""
    tally = Tally(strict=config.strict)
    for unit in cleaned:
        tally.add(Tally.from_json(json.loads((unit / "tally.json").read_text())))
    tally.check_strict()
    refuse_wrong_keys(tally, config)
    return tally


def load_plan(folder: Path, placed: Sequence[Path], strict: bool = False) -> Plan:
    """Read what `select_documents` wrote; with `strict`, raise SesameError on recorded damage.

    `placed` are the folders of the place pass.
    """
    values = json.loads((folder / "plan.json").read_text())
    tally = Tally.from_json(values["tally"], strict)
    tally.check_strict()
    homes, _ = find_homes(placed)
    placement = Placement(homes, _count_sections(homes), values["heldout_limit"])
    shards = [Shard(**shard) for shard in values["shards"]]
    return Plan(placement, shards, values["weights"], tally, values["counts"], values["statistics"])


def _count_sections(homes: Sequence[Home]) -> int:
    return sum(home.sections.stop - home.sections.start for home in homes)


def _section_groups(placement: Placement) -> Iterator[SectionGroups]:
    """Yield, per clean file, the kept sections' groups, first-of-document and held-out flags."""
    for placed in place_all(placement):
        numbers = placed.numbers[placed.kept]
        is_first = np.diff(numbers, prepend=-1) != 0
        yield placed.table["group"][placed.kept], is_first, placed.heldout[placed.kept]


def count_source_bytes(placement: Placement, sources: int) -> list[int]:
    """Return the bytes of training text per source, in the order of source numbers."""
    sizes = np.zeros(sources, np.int64)
    for placed in place_all(placement) if sources else ():
        chosen = placed.table[placed.kept & ~placed.heldout]
        sizes += np.bincount(chosen["source"], chosen["text_bytes"], sources).astype(np.int64)
    return sizes.tolist()


def _document_counts(tally: Tally) -> dict[str, Any]:
    values = tally.as_json()
    return {
        "read": tally.read,
        "kept": tally.kept,
        "dropped": values["dropped"],
        "repaired": values["repaired"],
        "broken_files": tally.broken_files,
    }
