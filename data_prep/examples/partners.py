"""Random second segments: where they start, and which example takes which.

An example whose second segment is random gives up its own continuation. The sentence at which that
would have started is an *opening*. The random segment of an example starts at another example's
opening, and a keyed permutation of all openings decides at which: every opening is used once. So no
text is favoured, whatever the size of the corpus, and a segment's file or region does not tell the
label: per region, as many segments are random as follow their first segment.

The permutation moves blocks of successive openings. A part of the corpus therefore reads its
segments from a few dozen stretches of other parts. The openings of one space are permuted among
themselves. A space is one duplicate of one stratum (a named source), and sentences without a
neighbour have spaces of their own, because their label is not decided by a coin.

An opening of the example's own document or group is swapped with another example's. Only if one
group has more than half of the openings, other openings are used again.

openings-*/  openings.npy, ordered by space; spaces.npy, their number per space; spares.npy, the
             starts of sections of two groups per stratum, for examples without another opening
table-*/     a `Table`
"""

# mypy: disallow-untyped-decorators=False

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from data_prep.arrays import save_array
from data_prep.examples.segments import Cuts, Ints, Partners, Text
from data_prep.examples.text import Unit
from data_prep.random import key, keys, permute

STRETCHES = 32  # stretches of other parts that a part of mean size reads
SKIPPED = 1024  # sentences; a gap shorter than this is read, not skipped

OPENING = np.dtype(
    [
        ("sentence", "<i8"),  # in the text of its part
        ("end", "<i8"),  # one past the last sentence of its section
        ("document", "<i8"),
        ("group", "<i8"),
        ("stratum", "<i8"),
        ("is_lone", "<i8"),
        ("part", "<i8"),
    ]
)
Openings = NDArray[np.void]


def find_openings(text: Text, cuts: Cuts, part: int) -> Openings:
    """Return the openings of a text's random examples [R], in the order of the examples."""
    section = cuts.section[cuts.is_random]
    found = _describe(text, section, cuts.openings(), part)
    found["is_lone"] = cuts.is_lone[cuts.is_random]
    return found


def _describe(text: Text, section: Ints, sentence: Ints, part: int) -> Openings:
    found = np.zeros(len(section), OPENING)
    found["sentence"], found["part"] = sentence, part
    found["end"] = text.sections[section + 1]
    found["document"], found["group"] = text.documents[section], text.groups[section]
    found["stratum"] = text.strata[section]
    return found


def _by_space(openings: Openings) -> Ints:
    return np.lexsort((openings["stratum"], openings["is_lone"]))


def write_openings(text: Text, openings: Openings, part: int, folder: Path) -> None:
    """Write the openings of one part, their number per space, and the part's spares."""
    openings = openings[_by_space(openings)]
    spaces = np.stack([openings["is_lone"], openings["stratum"]], 1)
    names, counts = np.unique(spaces, axis=0, return_counts=True)
    usable = np.flatnonzero(text.is_used & (np.diff(text.sections) > 0))
    save_array(folder / "openings.npy", openings)
    save_array(folder / "spaces.npy", np.column_stack([names, counts]))
    spares = _describe(text, usable, text.sections[usable], part)
    save_array(folder / "spares.npy", _two_groups_each(spares))


def _two_groups_each(spares: Openings) -> Openings:
    """Return the first spares of two different groups of each stratum, or of its only group."""
    pairs = np.stack([spares["stratum"], spares["group"]], 1)
    first = np.sort(np.unique(pairs, axis=0, return_index=True)[1])
    order = first[np.argsort(spares["stratum"][first], kind="stable")]
    strata = spares["stratum"][order]
    is_third = np.zeros(len(strata), np.bool_)
    is_third[2:] = strata[2:] == strata[:-2]
    return spares[np.sort(order[~is_third])]


@dataclass(frozen=True)
class Table:
    """The openings of one split and duplicate: Z spaces, P parts."""

    first: Ints  # [Z, P+1] index of each part's first opening in its space
    spaces: Ints  # [Z, 2] 1 for lone sentences, and the first of the strata that share the space
    strata: Ints  # [strata, 2] a stratum, and the first stratum of its space; ascending
    spares: Openings

    @property
    def group_count(self) -> int:
        """The number of groups: 0, 1, or 2 for two or more."""
        return min(len(np.unique(self.spares["group"])), 2)

    @property
    def parts(self) -> int:
        """The number of parts."""
        return int(self.first.shape[1]) - 1

    def row(self, space: int, parts: Ints) -> Ints:
        """Return the row of the space's first opening in each part's openings.npy."""
        before: Ints = (self.first[:space, parts + 1] - self.first[:space, parts]).sum(0)
        return before

    def space_of(self, openings: Openings) -> Ints:
        """Return the space of each opening."""
        place = np.searchsorted(self.strata[:, 0], openings["stratum"])
        joined = np.stack([openings["is_lone"], self.strata[place, 1]], 1)
        names = {tuple(name): number for number, name in enumerate(self.spaces.tolist())}
        distinct, inverse = np.unique(joined, axis=0, return_inverse=True)
        numbers = np.array([names[tuple(name)] for name in distinct.tolist()], np.int64)
        return numbers[inverse.reshape(-1)]

    def save(self, folder: Path) -> None:
        """Write the table to `folder`."""
        for name in ("first", "spaces", "strata", "spares"):
            save_array(folder / f"{name}.npy", getattr(self, name))

    @classmethod
    def load(cls, folder: Path) -> "Table":
        """Read the table that `save` wrote; a unit reads only a few pages of `first`."""
        first = np.load(folder / "first.npy", mmap_mode="r")
        return cls(first, *(np.load(folder / f"{n}.npy") for n in ("spaces", "strata", "spares")))


def make_table(units: Sequence[Unit]) -> Table:
    """Add up what `write_openings` counted in all parts of a split and duplicate."""
    counted = [np.load(unit.openings / "spaces.npy") for unit in units]
    spares = _two_groups_each(
        np.concatenate([np.load(unit.openings / "spares.npy") for unit in units])
    )
    strata = _join_lonely(spares)
    spaces = sorted(
        {(lone, strata[stratum]) for each in counted for lone, stratum, _ in each.tolist()}
    )
    numbers = {name: number for number, name in enumerate(spaces)}
    counts = np.zeros((len(spaces), len(units)), np.int64)
    for part, each in enumerate(counted):
        for lone, stratum, count in each.tolist():
            counts[numbers[lone, strata[stratum]], part] += count
    pairs = np.array(sorted(strata.items()), np.int64).reshape(-1, 2)
    first = np.concatenate([np.zeros((len(counts), 1), int), counts.cumsum(1)], 1)
    return Table(first, np.array(spaces, np.int64).reshape(-1, 2), pairs, spares)


def _join_lonely(spares: Openings) -> dict[int, int]:
    """Return the first stratum of each stratum's space.

    Strata share a space with their neighbour, in ascending order, until it has two groups.
    """
    names, groups = np.unique(spares["stratum"], return_counts=True)
    joined: dict[int, int] = {}
    spaces: list[tuple[int, int]] = []  # first stratum, groups
    for name, count in zip(names.tolist(), groups.tolist(), strict=True):
        if spaces and (spaces[-1][1] < 2 or (count < 2 and name == names[-1])):
            first, before = spaces.pop()
            spaces.append((first, before + count))
        else:
            spaces.append((name, count))
        joined[name] = spaces[-1][0]
    return joined


@dataclass(frozen=True)
class PartnerSource:
    """Draws the random segments of one unit from the openings of `units[…]`, one per part.

    is_own: the unit is one of these; otherwise (held-out text that is all of one group) it has no
        openings in the table and takes those of the largest space.
    fallback: more spares, for a duplicate in which only one group takes part.
    """

    unit: Unit
    table: Table
    openings_of: Unit  # any unit of the split and duplicate that the table counts
    fallback: Openings
    seed: int
    limit: int  # most tokens of a segment
    is_own: bool = True

    def draw(self, own: Openings) -> tuple[Partners, int]:
        """Return a partner for each opening's example [R], in the order of `own`.

        The second result counts the openings that had to be used more than once.
        """
        order = _by_space(own)
        own = own[order]
        space = self.table.space_of(own) if self.is_own else np.full(len(own), self._largest)
        taken: list[Openings] = []
        reused = 0
        for number in np.unique(space).tolist():
            wanted = own[space == number]
            rows = self._openings(number, len(wanted))
            shuffled = np.argsort(
                keys(key(self.seed, "shuffle", self.unit.duplicate, self.unit.part, number),
                     np.arange(len(rows)))
            )  # fmt: skip
            rows = rows[shuffled]
            chosen = _match(wanted["group"], rows["group"])
            is_open = chosen < 0
            found = rows[chosen]
            if is_open.any():
                reused += int(is_open.sum())
                found[is_open] = self._again(wanted[is_open], rows)
            taken.append(found)
        whole = np.empty(len(own), OPENING)
        whole[order] = np.concatenate([np.zeros(0, OPENING), *taken])
        return self._read(whole), reused

    @property
    def _largest(self) -> int:
        return int(self.table.first[:, -1].argmax())

    def _openings(self, space: int, count: int) -> Openings:
        """Read the openings that fall to this unit's `count` examples of a space."""
        first = self.table.first[space]
        begin = int(first[self.unit.part]) if self.is_own else 0
        block = max(1, int(first[-1]) // (STRETCHES * self.table.parts))
        permutation = key(self.seed, "partners", self.unit.duplicate, space)
        index = np.sort(_permuted(np.uint64(permutation), begin, count, block, int(first[-1])))
        part = np.searchsorted(first, index, "right") - 1
        row = self.table.row(space, part) + index - first[part]
        found = []
        for number in np.unique(part).tolist():
            unit = replace(self.openings_of, part=number)
            stored = np.load(unit.openings / "openings.npy", mmap_mode="r")
            found.append(stored[row[part == number]])
        return np.concatenate(found)

    def _again(self, wanted: Openings, rows: Openings) -> Openings:
        """Return openings of other groups for examples of one group, in turn."""
        group = wanted["group"][0]
        for candidates in (rows, self.table.spares, self.fallback):
            others = np.flatnonzero(candidates["group"] != group)
            if len(others):
                again: Openings = candidates[others[np.arange(len(wanted)) % len(others)]]
                return again
        raise AssertionError("the text has two groups")

    def _read(self, openings: Openings) -> Partners:
        """Read the text at these openings, at least `limit` tokens or to the section's end."""
        order = np.lexsort((openings["sentence"], openings["part"]))
        start, end = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
        ids: list[NDArray[Any]] = []
        lengths: list[Ints] = [np.zeros(0, np.int64)]
        read = 0  # sentences
        parts = openings["part"][order]
        for own in filter(len, np.split(order, np.flatnonzero(np.diff(parts)) + 1)):
            text = replace(self.openings_of, part=int(openings["part"][own[0]])).text
            offsets = np.load(text / "sentences.npy", mmap_mode="r")
            tokens = np.load(text / "ids.npy", mmap_mode="r")
            sentence = openings["sentence"][own]
            enough = np.searchsorted(offsets, offsets[sentence] + self.limit)
            reach = np.minimum(openings["end"][own], enough)
            for first, last, some in _stretches(sentence, reach):
                bounds = offsets[first : last + 1]
                ids.append(tokens[bounds[0] : bounds[-1]])
                lengths.append(np.diff(bounds))
                start[own[some]] = sentence[some] - first + read
                end[own[some]] = reach[some] - first + read
                read += last - first
        return Partners(
            ids=np.concatenate(ids) if ids else np.zeros(0, np.uint16),
            sentences=np.cumsum(np.concatenate([[0], *lengths])),
            start=start,
            end=end,
            documents=openings["document"].copy(),
        )


def _stretches(sentence: Ints, reach: Ints) -> Iterator[tuple[int, int, slice]]:
    """Divide ascending ranges [sentence, reach) of a text into stretches that are read at once.

    Yields the first sentence of a stretch, one past its last, and its ranges.
    """
    furthest = np.maximum.accumulate(reach)
    breaks = np.flatnonzero(sentence[1:] > furthest[:-1] + SKIPPED) + 1
    for begin, past in pairwise([0, *breaks.tolist(), len(sentence)]):
        yield int(sentence[begin]), int(furthest[past - 1]), slice(begin, past)


@njit(cache=True)
def _permuted(key: Any, begin: Any, count: Any, block: Any, total: Any) -> Any:
    """Return the openings of examples [begin, begin + count) of a space of `total` openings.

    Whole blocks are permuted; the rest, which is less than a block, stays in place. Examples past
    `total` start again at the first.
    """
    blocks = total // block
    found = np.empty(count, np.int64)
    at, image = -1, 0
    for number in range(count):
        example = (begin + number) % total
        if example >= blocks * block:
            found[number] = example
            continue
        if example // block != at:
            at = example // block
            image = permute(key, at, blocks)
        found[number] = image * block + example % block
    return found


@njit(cache=True)
def _match(wanted: Any, offered: Any) -> Any:
    """Assign to each example an opening of another group: the index in `offered`, or -1.

    Both are group numbers and equally long. -1 is left only for examples of a group that has more
    than half of both.
    """
    size = len(wanted)
    chosen = np.arange(size)
    at, is_exhausted = 0, False
    for example in range(size):
        group = wanted[example]
        if offered[chosen[example]] != group:
            continue
        steps = 0
        while not is_exhausted and (offered[chosen[at]] == group or wanted[at] == group):
            at = (at + 1) % size
            steps += 1
            is_exhausted = steps == size
        if not is_exhausted:
            chosen[example], chosen[at] = chosen[at], chosen[example]
    for example in range(size):
        if offered[chosen[example]] == wanted[example]:
            chosen[example] = -1
    return chosen
