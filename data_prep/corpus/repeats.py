"""Find documents and paragraphs that repeat earlier ones, over the whole corpus.

The first copy in corpus order survives. Deduplication runs before the held-out sections are chosen,
so no copy of a held-out text is left in training. Passes, as far as the config asks for them:

    sign_documents, match_documents    equal documents
    sign_near, match_near              pairs of surviving documents that share a band of MinHash
    lend_near, compare_near            compare the signatures of both: one group of files lends
                                       those of its documents to the groups of their partners
    sign_paragraphs, match_paragraphs  equal paragraphs of surviving documents

Reads the tables of clean files, never their text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_prep.arrays import save_array
from data_prep.config import CorpusConfig
from data_prep.corpus.clean_files import CleanFile, Flags, Table, documents_of
from data_prep.corpus.matching import (
    Group,
    MatchTask,
    bucket_count,
    match_bucket,
    signed,
    write_signatures,
)
from data_prep.corpus.minhash import SIGNATURE_VALUES, band_hashes, rows_per_band
from data_prep.passes import Passes
from data_prep.work_units import MakeUnit, WorkUnit

COMPARED_FIRSTS = 8  # earlier documents of a band that a document is compared with
COMPARED_ROWS = 1 << 15  # MinHash signatures in memory at a time: 512 bytes each

Signatures = NDArray[np.uint32]


@dataclass(frozen=True)
class Repeats:
    """Folders with `numbers.npy`: the repeated documents and paragraphs, sorted."""

    equal: list[Path] = field(default_factory=list)
    near: list[Path] = field(default_factory=list)
    paragraphs: list[Path] = field(default_factory=list)

    @property
    def documents(self) -> list[Path]:
        return [*self.equal, *self.near]


def repeat_passes(config: CorpusConfig) -> tuple[str, ...]:
    """Return the names of the passes, in order."""
    names: tuple[str, ...] = ()
    if config.deduplicate != "none":
        names += ("sign_documents", "match_documents")
    if config.near_duplicates is not None:
        names += ("sign_near", "match_near", "lend_near", "compare_near")
    if config.deduplicate == "paragraphs":
        names += ("sign_paragraphs", "match_paragraphs")
    return names


def find_repeats(groups: Sequence[Group], config: CorpusConfig, passes: Passes) -> Repeats:
    """Find repeated documents and paragraphs as the config asks."""
    found = Repeats()
    match = partial(_match, groups=groups, passes=passes)
    if config.deduplicate != "none":
        found = Repeats(match("documents", sign_documents))
    if config.near_duplicates is not None:
        rows = rows_per_band(config.near_duplicates)
        bands = partial(sign_bands, dropped=found.documents, rows=rows)
        pairs = match("near", bands, most=COMPARED_FIRSTS)
        lent = passes.run("lend_near", _units("lend_near", groups), partial(lend, pairs=pairs))
        compare = partial(compare_lent, lent=lent, threshold=config.near_duplicates)
        near = passes.run("compare_near", _units("compare_near", groups), compare)
        found = Repeats(found.equal, near)
    if config.deduplicate == "paragraphs":
        sign = partial(sign_paragraphs, dropped=found.documents)
        found = Repeats(found.equal, found.near, match("paragraphs", sign))
    return found


def _units(name: str, groups: Sequence[Group]) -> list[WorkUnit]:
    return [WorkUnit(f"{name}-{group.number:05d}", group) for group in groups]


def _match(
    kind: str, sign: Any, groups: Sequence[Group], passes: Passes, most: int | None = None
) -> list[Path]:
    """Sign all groups and match the signatures; return the folders of the match pass.

    sign: yields the SIGNED rows of a group.
    most: keep pairs, of each document with so many first ones; None keeps the later ones only.
    """
    is_paired = most is not None
    buckets = bucket_count(len(groups))
    write: MakeUnit = partial(write_signed, sign=sign, buckets=buckets)
    written = passes.run(f"sign_{kind}", _units(f"sign_{kind}", groups), write)
    tasks = [MatchTask(written, bucket, buckets, is_paired, most or 1) for bucket in range(buckets)]
    units = [WorkUnit(f"match_{kind}-{task.bucket:05d}", task) for task in tasks]
    return passes.run(f"match_{kind}", units, match_bucket)


def write_signed(group: Group, folder: Path, sign: Any, buckets: int) -> None:
    """Write the signatures of a group to `folder`."""
    write_signatures(sign(group), buckets, folder)


def sign_documents(group: Group) -> Iterator[Table]:
    """Yield the hashes of the group's documents."""
    first = group.first
    for file in group.files:
        rows = file.sections()
        rows = rows[rows["section"] == 0]
        yield signed(rows["low"], rows["high"], first + np.arange(len(rows)))
        first += len(rows)


def sign_bands(group: Group, dropped: Sequence[Path], rows: int) -> Iterator[Table]:
    """Yield the bands, of `rows` MinHash values each, of the group's surviving documents."""
    for own in split_flags(group, dropped):
        survives = np.flatnonzero(~own.flags)
        for start in range(0, len(survives), COMPARED_ROWS):
            some = survives[start : start + COMPARED_ROWS]
            for band, hashes in enumerate(band_hashes(own.file.signatures()[some], rows)):
                yield signed(hashes, np.full_like(hashes, band), group.first + own.first + some)


def sign_paragraphs(group: Group, dropped: Sequence[Path]) -> Iterator[Table]:
    """Yield the hashes of the paragraphs of the group's surviving documents."""
    first = group.first
    for own in split_flags(group, dropped):
        rows = own.file.paragraphs()
        is_signed = (rows["low"] != 0) | (rows["high"] != 0)
        survives = ~paragraphs_of(own.table, own.flags)
        chosen = np.flatnonzero(rows["begins"] & is_signed & survives)
        yield signed(rows["low"][chosen], rows["high"][chosen], first + chosen)
        first += len(rows)


@dataclass(frozen=True)
class FileFlags:
    """The flags of one clean file's D documents, the first of which has the place `first`."""

    file: CleanFile
    table: Table  # its SECTION rows
    flags: Flags  # [D]
    first: int  # in its group


def split_flags(group: Group, dropped: Sequence[Path]) -> Iterator[FileFlags]:
    """Yield the flags of dropped documents, file by file."""
    counts = [int((file.sections()["section"] == 0).sum()) for file in group.files]
    flags = group.flags(sum(counts), dropped)
    first = 0
    for file, count in zip(group.files, counts, strict=True):
        yield FileFlags(file, file.sections(), flags[first : first + count], first)
        first += count


def paragraphs_of(table: Table, documents: Flags) -> Flags:
    """Repeat the flags of a clean file's documents once per paragraph row."""
    return np.repeat(documents[documents_of(table)], table["paragraphs"])


def lend(group: Group, folder: Path, pairs: Sequence[Path]) -> None:
    """Write the signatures of the group's documents that are the first of a pair.

    `numbers.npy` has the other document of each pair, sorted; `signatures.npy` the signatures.
    """
    numbers, firsts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for each in pairs:
        own = group.numbers_in(each, "firsts")
        numbers.append(np.load(each / "numbers.npy", mmap_mode="r")[own])
        firsts.append(np.load(each / "firsts.npy", mmap_mode="r")[own])
    number, first = np.concatenate(numbers), np.concatenate(firsts)
    order = np.argsort(number, kind="stable")
    save_array(folder / "numbers.npy", number[order])
    about = {"descr": "<u4", "fortran_order": False, "shape": (len(order), SIGNATURE_VALUES)}
    with open(folder / "signatures.npy", "wb") as stream:
        np.lib.format.write_array_header_1_0(stream, about)
        for start in range(0, len(order), COMPARED_ROWS):  # those of all pairs would fill memory
            some = first[order[start : start + COMPARED_ROWS]]
            stream.write(_gather(group, some).tobytes())


def compare_lent(group: Group, folder: Path, lent: Sequence[Path], threshold: float) -> None:
    """Write `numbers.npy`: the group's documents that are similar to an earlier one.

    Documents that share a band are compared with the first COMPARED_FIRSTS documents that have this
    band, so the work grows linearly with the corpus. The very first alone would not do: it may be
    an unrelated document, which shares the band by chance. Similar: `threshold` of the MinHash
    values are equal.
    """
    similar = [np.zeros(0, np.int64)]
    for each in lent:
        own = group.numbers_in(each)
        for start in range(own.start, own.stop, COMPARED_ROWS):
            some = slice(start, min(start + COMPARED_ROWS, own.stop))
            numbers = np.array(np.load(each / "numbers.npy", mmap_mode="r")[some])
            theirs = np.load(each / "signatures.npy", mmap_mode="r")[some]
            ours = _gather(group, numbers)
            similar.append(numbers[(ours == theirs).mean(axis=1) >= threshold])
    save_array(folder / "numbers.npy", np.unique(np.concatenate(similar)))


def _gather(group: Group, numbers: NDArray[np.int64]) -> Signatures:
    """Return the signatures [N, SIGNATURE_VALUES] of these documents of the group."""
    gathered = np.empty((len(numbers), SIGNATURE_VALUES), np.uint32)
    counts = [len(file.signatures()) if len(numbers) else 0 for file in group.files]
    ends = np.cumsum(counts)
    places = numbers - group.first
    homes = np.searchsorted(ends, places, side="right")
    for home in np.unique(homes).tolist():
        chosen = np.flatnonzero(homes == home)
        own = places[chosen] - (int(ends[home]) - counts[home])
        gathered[chosen] = group.files[home].signatures()[own]
    return gathered
