"""Count the groups of documents, such as patients, per split. No group is in two splits."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from data_prep.errors import SesameError

GROUPS_AT_ONCE = 1 << 24  # hashes held in memory, 8 bytes each

Hashes = NDArray[np.uint64]
# The K kept sections of one clean file: group hashes [K] (0 for none), is the section the first of
# its document [K], is it held out [K].
SectionGroups = tuple[Hashes, NDArray[np.bool_], NDArray[np.bool_]]


def count_groups(read: Callable[[], Iterator[SectionGroups]], field: str) -> dict[str, int]:
    """Count the groups of the training and the held-out split, and documents without a group.

    `read` iterates over all clean files. It is called several times to bound memory: pass i of n
    counts the groups whose hash is i modulo n. Raises SesameError if no document has a group.
    """
    grouped = without = 0
    for hashes, is_first, _ in read():
        grouped += int((is_first & (hashes != 0)).sum())
        without += int((is_first & (hashes == 0)).sum())
    if not grouped:
        raise SesameError(
            f"corpus.group_field={field}: no kept document has a value in this field; set "
            "corpus.group_field to the field that names each document's group"
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
    """Return the distinct hashes of each split that are `number` modulo `passes`."""
    train, heldout = _Distinct(), _Distinct()
    for hashes, _, is_heldout in segments:
        chosen = (hashes != 0) & (hashes % np.uint64(passes) == number)
        train.add(hashes[chosen & ~is_heldout])
        heldout.add(hashes[chosen & is_heldout])
    return train.values(), heldout.values()


class _Distinct:
    """Collects the distinct values of many arrays.

    It merges only when the new values outnumber the known ones, so sorting stays cheap.
    """

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
