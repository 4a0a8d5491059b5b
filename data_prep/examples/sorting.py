"""Put the sections of a split into a seeded order by a partitioned sort, in bounded memory.

A document's place is the hash of its number; its sections keep their order. Two passes:

    scatter  one work unit per 64 MB of shards: its sections, sorted by hash, in one file; the
             hashes are divided into ranges, and `ranges.npy` tells where each range starts
    gather   one work unit per range: reads its stretch of every scattered file, divides it into
             runs that fit into memory, and sorts run after run

Every token is read and written a constant number of times, and the number of ranges is bounded, so
opens and bytes grow linearly with the text.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from data_prep.arrays import save_array
from data_prep.examples.columns import gather_ranges
from data_prep.examples.segments import Ints, Keys
from data_prep.examples.text import copies, read_text
from data_prep.random import key, keys
from data_prep.tokenizers.word_marks import split_compact

RUN_TOKENS = 1 << 22  # tokens sorted in memory at a time: 8 to 16 MB, several times over
MOST_RANGES = 256

SECTION = np.dtype(
    [
        ("hash", "<u8"),
        ("document", "<i8"),
        ("part", "<i8"),  # number of its text folder
        ("section", "<i8"),  # in its text folder
        ("sentences", "<i8"),
        ("tokens", "<i8"),
    ]
)
HEADER = np.dtype("<i8")  # sections, sentences and tokens that follow


@dataclass(frozen=True)
class Sections:
    """N tokenized sections with S sentences and T tokens, in any order."""

    table: NDArray[np.void]  # [N] SECTION rows
    lengths: NDArray[np.int32]  # [S] tokens per sentence
    ids: NDArray[np.unsignedinteger]  # [T]

    @classmethod
    def of(cls, folder: Path, part: int, dtype: str) -> "Sections":
        """Read the sections of a text folder, ids in this type; all hashes are 0."""
        text = read_text(folder)
        table = np.zeros(len(text.documents), SECTION)
        table["document"], table["part"] = text.documents, part
        table["section"] = np.arange(len(table))
        table["sentences"] = np.diff(text.sections)
        table["tokens"] = np.diff(text.sentences[text.sections])
        ids, _ = split_compact(text.ids, dtype)
        return cls(table, np.diff(text.sentences).astype(np.int32), ids)

    def take(self, chosen: Ints) -> "Sections":
        """Return these sections, in this order; `chosen` are indices and may repeat."""
        sentences, _ = gather_ranges(_offsets(self.table["sentences"]), chosen)
        tokens, _ = gather_ranges(_offsets(self.table["tokens"]), chosen)
        return Sections(self.table[chosen], self.lengths[sentences], self.ids[tokens])

    def split(self, bounds: Sequence[int]) -> Iterator["Sections"]:
        """Divide the sections at the indices `bounds`; yields views."""
        sentences, tokens = (_offsets(self.table[name]) for name in ("sentences", "tokens"))
        for begin, end in zip([0, *bounds], [*bounds, len(self.table)], strict=True):
            yield Sections(
                self.table[begin:end],
                self.lengths[sentences[begin] : sentences[end]],
                self.ids[tokens[begin] : tokens[end]],
            )

    def write(self, stream: BinaryIO) -> None:
        """Append the sections to a file of sections."""
        sizes = [len(self.table), len(self.lengths), len(self.ids)]
        stream.write(np.array(sizes, HEADER).tobytes())
        for array in (self.table, self.lengths, self.ids):
            stream.write(array.tobytes())

    @classmethod
    def read(cls, stream: BinaryIO, dtype: str) -> "Sections | None":
        """Read what one `write` wrote; None at the end of the file. `dtype` is that of ids."""
        sizes = np.frombuffer(stream.read(3 * HEADER.itemsize), HEADER)
        if not len(sizes):
            return None
        kinds = SECTION, np.dtype(np.int32), np.dtype(dtype)
        read = (
            np.frombuffer(stream.read(int(size) * kind.itemsize), kind)
            for size, kind in zip(sizes, kinds, strict=True)
        )
        return cls(*read)


def join(several: Sequence[Sections], dtype: str) -> Sections:
    """Concatenate sections; `dtype` is that of ids."""
    return Sections(
        np.concatenate([np.zeros(0, SECTION), *(each.table for each in several)]),
        np.concatenate([np.zeros(0, np.int32), *(each.lengths for each in several)]),
        np.concatenate([np.zeros(0, dtype), *(each.ids for each in several)]),
    )


def _offsets(sizes: NDArray[Any]) -> Ints:
    return np.concatenate([[0], np.cumsum(sizes)])


def range_count(tokens: int) -> int:
    """Return the number of ranges for so many tokens."""
    return min(1 + tokens // RUN_TOKENS, MOST_RANGES)


def _range_of(hashes: Keys, ranges: int) -> Ints:
    """Return the range of each hash; ascending hashes have ascending ranges."""
    return ((hashes >> np.uint64(32)) * np.uint64(ranges) >> np.uint64(32)).astype(np.int64)


@dataclass(frozen=True)
class ScatterTask:
    """Scatter these text folders, whose first is part number `first`, into `ranges` ranges.

    A document is there as often as `copies` says, each copy at a place of its own.
    """

    texts: list[Path]
    first: int
    ranges: int
    seed: int
    duplicates: int
    dtype: str  # of ids


def scatter(task: ScatterTask, folder: Path) -> None:
    """Run a `ScatterTask`: write `sections` and `ranges.npy` (byte offset, tokens) to `folder`."""
    read = []
    for part, text in enumerate(task.texts, task.first):
        used = copies(text, task.seed, task.duplicates)
        own = Sections.of(text, part, task.dtype).take(np.repeat(np.arange(len(used)), used))
        copy = np.arange(len(own.table)) - np.repeat(np.cumsum(used) - used, used)
        own.table["hash"] = _hashes(own.table["document"], copy, task.seed)
        read.append(own)
    whole = join(read, task.dtype)
    whole = whole.take(np.argsort(whole.table["hash"], kind="stable"))
    bounds = np.searchsorted(
        _range_of(whole.table["hash"], task.ranges), np.arange(1, task.ranges)
    ).tolist()
    ranges = []
    with open(folder / "sections", "wb") as stream:
        for own in whole.split(bounds):
            ranges.append((stream.tell(), len(own.ids)))
            own.write(stream)
    save_array(folder / "ranges.npy", np.array(ranges, np.int64))


def _hashes(documents: Ints, copy: Ints, seed: int) -> Keys:
    hashes = np.empty(len(documents), np.uint64)
    for number in range(int(copy.max(initial=-1)) + 1):
        chosen = copy == number
        own = key(seed, "documents", *([number] if number else []))
        hashes[chosen] = keys(own, documents[chosen])
    return hashes


@dataclass(frozen=True)
class GatherTask:
    """Gather range `number` of `ranges`: its offset in each scattered file, and its tokens."""

    number: int
    ranges: int
    files: list[Path]
    starts: list[int]
    tokens: int
    dtype: str  # of ids


def gather(task: GatherTask, scratch: Path) -> Iterator[Sections]:
    """Yield the sections of a range in their final order, run after run.

    scratch: a path that is used as a prefix of temporary files.
    """
    runs = 1 + task.tokens // RUN_TOKENS
    if runs == 1:
        yield _sorted(join(list(_stretches(task)), task.dtype))
        return
    paths = [scratch.with_name(f"{scratch.name}-{number:05d}") for number in range(runs)]
    with ExitStack() as opened:
        streams = [opened.enter_context(open(path, "wb")) for path in paths]
        for stretch in _stretches(task):
            run = _range_of(stretch.table["hash"], task.ranges * runs) - task.number * runs
            bounds = np.searchsorted(run, np.arange(1, runs)).tolist()
            for stream, own in zip(streams, stretch.split(bounds), strict=True):
                own.write(stream)
    for path in paths:
        yield _sorted(join(list(_read_all(path, task.dtype)), task.dtype))
        path.unlink()


def _read_all(path: Path, dtype: str) -> Iterator[Sections]:
    with open(path, "rb") as stream:
        while (found := Sections.read(stream, dtype)) is not None:
            yield found


def _stretches(task: GatherTask) -> Iterator[Sections]:
    """Yield the range's sections of each scattered file, in corpus order of the files."""
    for file, start in zip(task.files, task.starts, strict=True):
        with open(file, "rb") as stream:
            stream.seek(start)
            found = Sections.read(stream, task.dtype)
        assert found is not None, "every file has every range"
        yield found


def _sorted(sections: Sections) -> Sections:
    # Stable: sections of one document stay in order, and so do parts.
    return sections.take(np.argsort(sections.table["hash"], kind="stable"))
