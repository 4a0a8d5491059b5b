"""Match signatures over the whole corpus, in two passes of work units.

    sign   one unit per group of clean files: its signatures, distributed over buckets
    match  one unit per bucket: the rows whose signature an earlier row of the corpus has

A document or paragraph is named by its group and its place in the group, in one number; numbers
ascend in corpus order. There are at most 256 groups and 256 buckets, so the number of files that
the passes open is bounded, and what a unit reads is a share of the tables, never text.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_prep.arrays import save_array
from data_prep.corpus.clean_files import CleanFile, Flags, Table
from data_prep.corpus.deduplicate import SIGNED, Numbers, SignatureTable

GROUP_FILES = 64  # clean files per group
MOST_GROUPS = 256
MOST_BUCKETS = 256
BUCKETS_PER_GROUP = 4
BLOCK_ROWS = 1 << 20  # signatures that are distributed at a time: 24 MB
PLACES = 1 << 40  # numbers of a group


@dataclass(frozen=True)
class Group:
    """Successive clean files; their documents and paragraphs are numbered from `first`."""

    number: int
    files: list[CleanFile]

    @property
    def first(self) -> int:
        return self.number * PLACES

    def numbers_in(self, folder: Path, column: str = "numbers") -> slice:
        """Return the rows of this group in a sorted column of numbers in `folder`."""
        numbers = np.load(folder / f"{column}.npy", mmap_mode="r")
        begin, end = np.searchsorted(numbers, [self.first, self.first + PLACES]).tolist()
        return slice(begin, end)

    def flags(self, size: int, found: Sequence[Path]) -> Flags:
        """Flag the rows that are in `numbers.npy` of these folders, of `size` in the group."""
        flags = np.zeros(size, np.bool_)
        for folder in found:
            own = self.numbers_in(folder)
            if own.start < own.stop:
                flags[np.load(folder / "numbers.npy", mmap_mode="r")[own] - self.first] = True
        return flags


def group_files(files: Sequence[CleanFile]) -> list[Group]:
    """Divide the clean files into groups; the result depends on their number only."""
    size = max(GROUP_FILES, -(-len(files) // MOST_GROUPS))
    return [
        Group(number, list(files[first : first + size]))
        for number, first in enumerate(range(0, len(files), size))
    ]


def bucket_count(groups: int) -> int:
    """Return the number of buckets; one is enough for one group."""
    return 1 if groups == 1 else min(BUCKETS_PER_GROUP * groups, MOST_BUCKETS)


def signed(low: NDArray[Any], high: NDArray[Any], numbers: Numbers) -> Table:
    """Return SIGNED rows [N]."""
    rows = np.empty(len(low), SIGNED)
    rows["low"], rows["high"], rows["number"] = low, high, numbers
    return rows


def write_signatures(signatures: Iterable[Table], buckets: int, folder: Path) -> None:
    """Write a group's SIGNED rows to `folder`, block after block, each ordered by bucket.

    `rows` holds the rows; `starts.npy` [blocks, buckets + 1] the first row of each bucket.
    """
    starts: list[NDArray[np.int64]] = []
    written = 0
    with open(folder / "rows", "wb") as stream:
        for block in _blocks(signatures):
            bucket = (block["low"] % np.uint64(buckets)).astype(np.int64)
            order = np.argsort(bucket, kind="stable")  # keeps corpus order inside each bucket
            stream.write(block[order].tobytes())
            starts.append(written + np.searchsorted(bucket[order], np.arange(buckets + 1)))
            written += len(block)
    save_array(folder / "starts.npy", np.array(starts, np.int64).reshape(-1, buckets + 1))


def _blocks(signatures: Iterable[Table]) -> Iterator[Table]:
    held: list[Table] = []
    for rows in signatures:
        held.append(rows)
        if sum(map(len, held)) >= BLOCK_ROWS:
            yield np.concatenate(held)
            held = []
    if held:
        yield np.concatenate(held)


@dataclass(frozen=True)
class MatchTask:
    """Match the rows of one of `buckets` buckets in the folders of the sign pass, in their order.

    by_first: keep both documents of each pair, ordered by the first; else only the later ones.
    most: pair each row with so many first rows of its signature.
    """

    signed: list[Path]
    bucket: int
    buckets: int
    by_first: bool = False
    most: int = 1


def match_bucket(task: MatchTask, folder: Path) -> None:
    """Run a `MatchTask`: write `numbers.npy`, and with `by_first` also `firsts.npy`.

    Numbers are those of the rows whose signature an earlier row has.
    """
    starts = [np.load(each / "starts.npy")[:, task.bucket :][:, :2] for each in task.signed]
    rows = sum(int(np.diff(each).sum()) for each in starts)
    table = SignatureTable(folder / "scratch", rows, task.buckets)
    for each, own in zip(task.signed, starts, strict=True):
        with open(each / "rows", "rb") as stream:
            for begin, end in own.tolist():
                stream.seek(begin * SIGNED.itemsize)
                table.add_rows(np.fromfile(stream, SIGNED, end - begin))
    nothing = np.zeros(0, np.int64), np.zeros(0, np.int64)
    found = list(table.repeats(task.most))
    numbers, firsts = (np.concatenate(each) for each in zip(nothing, *found, strict=True))
    if not task.by_first:
        save_array(folder / "numbers.npy", np.sort(numbers))
        return
    # Two documents may share several bands.
    order = np.lexsort((numbers, firsts))
    numbers, firsts = numbers[order], firsts[order]
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (np.diff(numbers) != 0) | (np.diff(firsts) != 0)
    save_array(folder / "numbers.npy", numbers[is_new])
    save_array(folder / "firsts.npy", firsts[is_new])
