"""The select pass, between cleaning and writing: every decision that needs the whole corpus.

It drops repeats, numbers the documents, chooses the held-out sections and assigns sections to
shard files. It reads the tables of all clean files, one file at a time, never their text.
It writes one work unit: `documents.npy` and `paragraphs.npy` (one flag each, True if dropped),
`sections` (the section table without dropped paragraphs) and `plan.json` (everything else).
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.config import CorpusConfig
from data_prep.corpus.clean_files import (
    Bounds,
    CleanFile,
    Flags,
    KeptParagraphs,
    documents_of,
    list_clean_files,
)
from data_prep.corpus.deal import Shard, deal_sections
from data_prep.corpus.decontamination import Benchmarks
from data_prep.corpus.deduplicate import flag_repeats, paragraphs_of
from data_prep.corpus.diagnosis import refuse_wrong_keys
from data_prep.corpus.groups import SectionGroups, count_groups
from data_prep.corpus.mixture import source_weights
from data_prep.corpus.placement import Placement, choose_heldout, place_all
from data_prep.corpus.strata import count_strata
from data_prep.files import reserve
from data_prep.reading.tally import Tally


@dataclass(frozen=True)
class Plan:
    """The result of the select pass, as `load_plan` reads it."""

    placement: Placement
    shards: list[Shard]
    weights: list[float]  # per source: expected copies of a document in training
    tally: Tally
    counts: dict[str, Any]
    statistics: dict[str, Any]


def select_documents(_: None, folder: Path, config: CorpusConfig, cleaned: list[Path]) -> None:
    """Make all decisions that need the whole corpus and write them to `folder`.

    `cleaned` are the folders of the clean pass. Raises SesameError if strict and a document was
    damaged, if a named field is in no record, or if no document is left.
    """
    tally = _add_tallies(cleaned, config)
    files = list_clean_files(cleaned)
    placement, paragraph_counts = _place(files, config, tally, folder)
    names = sorted(config.sources)
    sizes = dict(zip(names, count_source_bytes(placement, len(names)), strict=True))
    weights = source_weights(sizes, config.weights, config.temperature)
    shards, counts, statistics = deal_sections(placement, config.shard_size)
    counts = {"documents": _document_counts(tally), "paragraphs": paragraph_counts, **counts}
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
    counts |= count_strata(tally, files, placement.bounds, placement.dropped_documents, names)
    plan = {
        "bounds": asdict(placement.bounds),
        "first_number": placement.first_number,
        "heldout_limit": placement.heldout_limit,
        "shards": [asdict(shard) for shard in shards],
        "weights": [weights[name] for name in names] or [1.0],
        "tally": tally.as_json(),
        "counts": counts,
        "statistics": {**counts, **statistics, "damaged": tally.as_json()["notes"]},
    }
    (folder / "plan.json").write_text(json.dumps(plan))


def _add_tallies(cleaned: list[Path], config: CorpusConfig) -> Tally:
    tally = Tally(strict=config.strict)
    for unit in cleaned:
        tally.add(Tally.from_json(json.loads((unit / "tally.json").read_text())))
    tally.check_strict()
    refuse_wrong_keys(tally, config)
    return tally


def _place(
    files: list[CleanFile], config: CorpusConfig, tally: Tally, folder: Path
) -> tuple[Placement, dict[str, Any]]:
    """Drop repeats, number the documents and choose the held-out sections.

    Writes the flags and the section table to `folder` and adds the drops to `tally`. Returns the
    placement and the paragraph counts.
    """
    bounds = Bounds.of(files)
    documents = _new_flags(folder / "documents.npy", bounds.documents[-1])
    paragraphs = _new_flags(folder / "paragraphs.npy", bounds.paragraphs[-1])
    sections = folder / "sections"
    repeated = flag_repeats(files, bounds, documents, paragraphs, config, folder / "compared")
    repeated["duplicate_paragraphs"], paragraph_counts = keep_the_rest(
        files, bounds, documents, paragraphs, sections
    )
    tally.dropped.update(+repeated)  # unary plus drops the zero counts
    first_number = [0]
    for first, past in pairwise(bounds.documents):
        first_number.append(first_number[-1] + int((~documents[first:past]).sum()))
    placement = Placement(bounds, documents, paragraphs, sections, first_number, heldout_limit=0)
    placement = replace(placement, heldout_limit=choose_heldout(placement))
    for written in (documents, paragraphs):
        written.flush()
    return placement, paragraph_counts


def _new_flags(path: Path, size: int) -> np.memmap[Any, np.dtype[np.bool_]]:
    flags = np.lib.format.open_memmap(path, "w+", np.dtype(np.bool_), (size,))
    reserve(path)
    return flags


def load_plan(folder: Path, strict: bool = False) -> Plan:
    """Read what `select_documents` wrote; with `strict`, raise SesameError on recorded damage."""
    values = json.loads((folder / "plan.json").read_text())
    tally = Tally.from_json(values["tally"], strict)
    tally.check_strict()
    placement = Placement(
        Bounds(**values["bounds"]),
        np.load(folder / "documents.npy", mmap_mode="r"),
        np.load(folder / "paragraphs.npy", mmap_mode="r"),
        folder / "sections",
        values["first_number"],
        values["heldout_limit"],
    )
    shards = [Shard(**shard) for shard in values["shards"]]
    return Plan(placement, shards, values["weights"], tally, values["counts"], values["statistics"])


def keep_the_rest(
    segments: list[CleanFile],
    bounds: Bounds,
    documents: Flags,
    paragraphs: Flags,
    sections: Path,
) -> tuple[int, dict[str, Any]]:
    """Write the section rows without dropped paragraphs to `sections`.

    A document that lost all its paragraphs is dropped too: its flag in `documents` is set in
    place. Returns the number of such documents, and the paragraph counts.
    """
    read, emptied, dropped = 0, 0, Counter(duplicate=0, document=0)
    with open(sections, "wb") as stream:
        for number, segment in enumerate(segments):
            _, of_document, of_paragraph = bounds.slices(number)
            table, rows = segment.sections(), segment.paragraphs()
            gone, lost = paragraphs[of_paragraph], documents[of_document]
            read += int(rows["begins"].sum())
            dropped["duplicate"] += int((rows["begins"] & gone).sum())
            dropped["document"] += int((rows["begins"] & paragraphs_of(segment, lost)).sum())
            if gone.any():
                table = KeptParagraphs(table, rows, gone).sections()
                empty = ~lost & (np.bincount(documents_of(table), table["sentences"]) == 0)
                emptied += int(empty.sum())
                lost |= empty
            stream.write(table.tobytes())
    kept = read - dropped.total()
    return emptied, {"read": read, "kept": kept, "dropped": dict(sorted((+dropped).items()))}


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
