"""The write pass of the `shard` stage: one work unit per shard file.

A unit reads the clean files that its sections are in, at the rows that the plan names, and writes
one tar with its index (data_prep.corpus.shard_format).
"""

import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_prep.corpus.clean_files import CleanFile, KeptParagraphs
from data_prep.corpus.deal import Shard
from data_prep.corpus.placement import place_sections
from data_prep.corpus.select import Plan, load_plan
from data_prep.corpus.shard_format import StoredSection, write_shard
from data_prep.passes import Passes
from data_prep.work_units import WorkUnit


@dataclass(frozen=True)
class WriteTask:
    """Write one shard file from the clean files [spans] that its spans are in."""

    shard: Shard
    files: list[CleanFile]


def write_shards(
    plan: Plan, joined: Path, files: Sequence[CleanFile], passes: Passes, out: Path
) -> None:
    """Write all shard files of the plan, which is stored in the folder `joined`, to `out`."""
    units = [
        WorkUnit(
            f"write-{shard.name}", WriteTask(shard, [files[number] for number, _, _ in shard.spans])
        )
        for shard in plan.shards
    ]
    folders = passes.run("write", units, functools.partial(write_unit, joined=joined))
    passes.end_slices()
    for folder in folders:
        for path in sorted(folder.iterdir()):
            os.replace(path, out / path.name)


def write_unit(task: WriteTask, folder: Path, joined: Path) -> None:
    """Write the task's shard file and its index into `folder`."""
    plan = load_plan(joined)
    sections = (
        section
        for file, span in zip(task.files, task.shard.spans, strict=True)
        for section in _read_span(file, span, plan, task.shard.heldout)
    )
    write_shard(folder / f"{task.shard.name}.tar", sections)


def _read_span(
    file: CleanFile, span: tuple[int, int, int], plan: Plan, heldout: bool
) -> Iterator[StoredSection]:
    """Yield one split's sections of a span, without their dropped paragraphs."""
    number, first, last = span
    placed = place_sections(plan.placement, number)
    dropped = plan.placement.dropped_paragraphs[plan.placement.bounds.slices(number)[2]]
    kept = KeptParagraphs(file.sections(), file.paragraphs(), dropped)
    rows = first + np.flatnonzero((placed.kept & (placed.heldout == heldout))[first:last])
    with open(file.text, "rb") as stream:
        for row in rows.tolist():
            text, origin = kept.read(stream, row)
            table = placed.table[row]
            yield StoredSection(
                document=int(placed.numbers[row]),
                section=int(table["section"]),
                text=text,
                origin=origin,
                sentences=int(table["sentences"]),
                words=int(table["words"]),
                weight=1.0 if heldout else plan.weights[int(table["source"])],
            )
