"""Write the rows of a split to its shard files: one work unit per tar, which also checks it.

The rows are those of all rows files, in order. The plan follows from their sizes alone: which rows
each tar holds, and which chunks are checked. A unit writes one tar with its index, checks its
chunks as they are on disk (data_prep.examples.validate), and measures reuse if asked to.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from data_prep.examples.chunks import END_OF_TAR, ChunkStore, ChunkWriter
from data_prep.examples.columns import ChunkSizes, column_bytes
from data_prep.examples.config import ExamplesConfig
from data_prep.examples.reuse import Reuse
from data_prep.examples.rows import mask_rule
from data_prep.examples.rows_files import RowsFile
from data_prep.examples.tar_members import BLOCK, NPY_BYTES
from data_prep.examples.validate import Draws, Rules, check_rows, sampled_chunks
from data_prep.tokenizers import load_tokenizer
from data_prep.work_units import WorkUnit

DRAWS, REUSE = "draws.json", "reuse.npz"
NOT_OUTPUT = (DRAWS, REUSE)


@dataclass(frozen=True)
class Layout:
    """The form of a split's shard files."""

    split: str
    chunk_rows: int
    shard_size: int
    vocab_size: int
    static: bool  # masks are stored

    @classmethod
    def of(cls, split: str, config: ExamplesConfig, vocab_size: int, static: bool) -> "Layout":
        """Take the sizes from the config."""
        return cls(split, config.chunk_rows, config.shard_size, vocab_size, static)


@dataclass(frozen=True)
class Tar:
    """Rows [first_row, end_row) of a split: one shard file, which starts with `first_chunk`."""

    number: int
    first_chunk: int
    end_chunk: int
    first_row: int
    end_row: int
    is_last: bool


@dataclass(frozen=True)
class Span:
    """Rows [start, stop) of a rows file."""

    file: RowsFile
    start: int
    stop: int


@dataclass(frozen=True)
class TarTask:
    """Write and check one tar: its rows, in order, and the chunks to check."""

    layout: Layout
    tar: Tar
    spans: list[Span]
    checked: list[int]
    documents: int | None  # documents of the split, if reuse is measured


def plan_tars(files: Sequence[RowsFile], layout: Layout) -> list[Tar]:
    """Divide the rows into tars of at most `shard_size` bytes; there is always one tar."""
    bounds: list[tuple[int, int]] = [(0, 0)]  # first chunk and first row of each tar
    chunks = row = filled = 0
    for sizes in _chunk_sizes(files, layout.chunk_rows):
        columns = column_bytes(sizes, layout.vocab_size, layout.static)
        size = sum(map(_member_bytes, columns.values()))
        is_full = filled + size + len(END_OF_TAR) > layout.shard_size
        if is_full and chunks > bounds[-1][0]:
            bounds.append((chunks, row))
            filled = 0
        filled += size
        chunks, row = chunks + 1, row + sizes.rows
    ends = [*bounds[1:], (chunks, row)]
    return [
        Tar(number, chunk, end_chunk, row, end_row, is_last=number == len(bounds) - 1)
        for number, ((chunk, row), (end_chunk, end_row)) in enumerate(
            zip(bounds, ends, strict=True)
        )
    ]


def _member_bytes(column: int) -> int:
    """Return the bytes of a tar member: header, `.npy` bytes, padding."""
    content = NPY_BYTES + column
    return BLOCK + content + -content % BLOCK


def _chunk_sizes(files: Sequence[RowsFile], chunk_rows: int) -> Iterator[ChunkSizes]:
    """Yield the sizes of each chunk."""
    before = begin = np.zeros(
        len(ChunkSizes._fields), np.int64
    )  # totals before the file, and before the chunk
    for file in files:
        sizes = file.sizes()
        first = chunk_rows - int(before[0]) % chunk_rows
        for end in before + sizes[first::chunk_rows]:
            yield ChunkSizes(*(end - begin).tolist())
            begin = end
        before = before + sizes[-1]
    if before[0] > begin[0]:
        yield ChunkSizes(*(before - begin).tolist())


def plan_split(files: Sequence[RowsFile], layout: Layout, documents: int | None) -> list[TarTask]:
    """Return the tasks of a split; `documents` is their number if reuse is measured."""
    tars = plan_tars(files, layout)
    checked = sampled_chunks(tars[-1].end_chunk, tars[-1].end_row)
    ends = np.cumsum([file.rows for file in files])
    tasks = []
    for tar in tars:
        own = checked[(checked >= tar.first_chunk) & (checked < tar.end_chunk)].tolist()
        spans = []
        index = int(np.searchsorted(ends, tar.first_row, "right"))
        while index < len(files) and ends[index] - files[index].rows < tar.end_row:
            begin = int(ends[index]) - files[index].rows
            start, stop = max(tar.first_row - begin, 0), min(tar.end_row, int(ends[index])) - begin
            if start < stop:
                spans.append(Span(files[index], start, stop))
            index += 1
        tasks.append(TarTask(layout, tar, spans, own, documents))
    return tasks


def write_plan(tasks: Sequence[TarTask], path: Path) -> None:
    """Write the tasks as JSON; rows folders are named relative to their common root."""
    path.write_text(
        json.dumps(
            [
                {
                    "layout": asdict(task.layout),
                    "tar": asdict(task.tar),
                    "spans": [
                        [each.file.folder.name, each.file.number, each.file.rows, each.start,
                         each.stop]
                        for each in task.spans
                    ],
                    "checked": task.checked,
                    "documents": task.documents,
                }
                for task in tasks
            ]
        )
    )  # fmt: skip


def read_plan(path: Path, root: Path) -> list[TarTask]:
    """Read the tasks that `write_plan` wrote; rows folders are below `root`."""
    return [
        TarTask(
            Layout(**each["layout"]),
            Tar(**each["tar"]),
            [
                Span(RowsFile(root / name, number, rows), start, stop)
                for name, number, rows, start, stop in each["spans"]
            ],
            each["checked"],
            each["documents"],
        )
        for each in json.loads(path.read_text())
    ]


def tar_units(tasks: Sequence[TarTask]) -> list[WorkUnit]:
    """Return the work units of these tasks."""
    return [WorkUnit(f"write-{task.layout.split}-{task.tar.number:05d}", task) for task in tasks]


def write_tar(
    task: TarTask, folder: Path, config: ExamplesConfig, tokenizer: Path, out: Path
) -> None:
    """Write and check the tar of a task; `out` is where it will be.

    Raises SesameError at the first row that breaks a rule.
    """
    rules = Rules(config, load_tokenizer(tokenizer), mask_rule(config, task.layout.split))
    layout, tar = task.layout, task.tar
    reuse = None if task.documents is None else Reuse(task.documents)
    with ChunkWriter(
        folder,
        layout.split,
        shard_size=layout.shard_size,
        chunk_rows=layout.chunk_rows,
        vocab_size=layout.vocab_size,
        static=layout.static,
        tars=tar.number,
        chunks=tar.first_chunk,
        has_next=not tar.is_last,
    ) as writer:
        for span in task.spans:
            rows = span.file.read().between(span.start, span.stop)
            writer.add(rows)
            if reuse is not None:
                reuse.add(rows)
    assert (writer.chunks, writer.tars) == (tar.end_chunk, tar.number + 1), "not as planned"
    draws = check_rows(ChunkStore(folder, layout.split, tar.number), task.checked, rules, out)
    (folder / DRAWS).write_text(json.dumps(asdict(draws)))
    if reuse is not None:
        reuse.save(folder / REUSE)


def add_up(folders: Sequence[Path], reuse: Reuse | None) -> Draws:
    """Add up the draws of all tars; adds what they measured of reuse to `reuse`."""
    draws = Draws()
    for folder in folders:
        draws.add(Draws(**json.loads((folder / DRAWS).read_text())))
        if reuse is not None:
            reuse.add_saved(folder / REUSE)
    return draws
