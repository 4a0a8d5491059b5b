"""Groups of documents, such as patients: how many each split has. No group is in two splits."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from data_prep.errors import SesameError

GROUPS_AT_ONCE = 1 << 24  # hashes held in memory, 8 bytes each

Hashes = NDArray[np.uint64]
# Of one segment: the kept sections' group hashes (0 for none), whether each section is its
# document's first one, and whether it is held out.
SectionGroups = tuple[Hashes, NDArray[np.bool_], NDArray[np.bool_]]


def count_groups(read: Callable[[], Iterator[SectionGroups]], field: str) -> dict[str, int]:
    """Groups of the training and the held-out split, and kept documents that have no group.

    `read` gives all segments and is called several times, so that memory is bounded: each pass
    counts the groups of one residue class of hashes.
    """
    grouped = without = 0
    for hashes, is_first, _ in read():
        grouped += int((is_first & (hashes != 0)).sum())
        without += int((is_first & (hashes == 0)).sum())
    if not grouped:
        raise SesameError(
            f"corpus.group_field={field}: no kept document has a value there; set "
            "corpus.group_field to a field that tells what documents belong to"
        )
    passes = -(-grouped // GROUPS_AT_ONCE)
    counts = {"train": 0, "heldout": 0, "documents_without": without}
    for number in range(passes):
        train, heldout = _distinct(read(), number, passes)
        assert not np.intersect1d(train, heldout, assume_unique=True).size, "a group in two splits"
        counts["train"] += train.size
        counts["heldout"] += heldout.size
    return counts


def _distinct(segments: Iterator[SectionGroups], number: int, passes: int) -> tuple[Hashes, Hashes]:
    """The distinct hashes of each split that leave `number` when divided by `passes`."""
    train, heldout = _Distinct(), _Distinct()
    for hashes, _, is_heldout in segments:
        chosen = (hashes != 0) & (hashes % np.uint64(passes) == number)
        train.add(hashes[chosen & ~is_heldout])
        heldout.add(hashes[chosen & is_heldout])
    return train.values(), heldout.values()


class _Distinct:
    """Distinct values of many arrays; sorted anew only when as many have come as there are."""

    def __init__(self) -> None:
        self._found = np.zeros(0, np.uint64)
        self._new: list[Hashes] = []

    def add(self, values: Hashes) -> None:
        self._new.append(np.unique(values))
        if sum(each.size for each in self._new) > self._found.size:
            self.values()

    def values(self) -> Hashes:
        self._found = np.unique(np.concatenate([self._found, *self._new]))
        self._new = []
        return self._found
