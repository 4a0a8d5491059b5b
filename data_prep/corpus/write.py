"""The write pass of the `shard` stage: one work unit per shard file.

A unit reads the clean files that its sections are in, at the rows that the plan names, and writes
one tar with its index (data_prep.corpus.shard_format).
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_prep.corpus.clean_files import CleanFile, KeptParagraphs
from data_prep.corpus.placement import Home, place_sections
from data_prep.corpus.select import Plan
from data_prep.corpus.shard_format import StoredSection, write_shard
from data_prep.passes import Passes
from data_prep.work_units import WorkUnit


@dataclass(frozen=True)
class Span:
    """Rows [first, last) of a clean file, and where its rows are in the plan's tables."""

    file: CleanFile
    home: Home
    first: int
    last: int


@dataclass(frozen=True)
class WriteTask:
    """Write one shard file from the rows of its split in these spans.

    It holds all of the plan that the unit needs, so that no unit reads the plan of the corpus.
    """

    name: str
    is_heldout: bool
    spans: list[Span]
    heldout_limit: int
    weights: list[float]  # per source


def write_shards(plan: Plan, files: Sequence[CleanFile], passes: Passes, out: Path) -> None:
    """Write all shard files of the plan to `out`."""
    placement = plan.placement
    units = [
        WorkUnit(
            f"write-{shard.name}",
            WriteTask(
                shard.name,
                shard.heldout,
                [
                    Span(files[number], placement.homes[number], first, last)
                    for number, first, last in shard.spans
                ],
                placement.heldout_limit,
                plan.weights,
            ),
        )
        for shard in plan.shards
    ]
    folders = passes.run("write", units, write_unit)
    passes.end_slices()
    for folder in folders:
        for path in sorted(folder.iterdir()):
            os.replace(path, out / path.name)


def write_unit(task: WriteTask, folder: Path) -> None:
    """Write the task's shard file and its index into `folder`."""
    sections = (section for span in task.spans for section in _read_span(span, task))
    write_shard(folder / f"{task.name}.tar", sections)


def _read_span(span: Span, task: WriteTask) -> Iterator[StoredSection]:
    """Yield one split's sections of a span, without their dropped paragraphs."""
    placed = place_sections(span.home, task.heldout_limit)
    file = span.file
    kept = KeptParagraphs(file.sections(), file.paragraphs(), span.home.dropped_paragraphs())
    is_own = placed.kept & (placed.heldout == task.is_heldout)
    rows = span.first + np.flatnonzero(is_own[span.first : span.last])
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
                weight=1.0 if task.is_heldout else task.weights[int(table["source"])],
            )
