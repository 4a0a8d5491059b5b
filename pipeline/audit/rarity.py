"""Counts in how many groups each vocabulary entry occurs.

An entry that occurs in the notes of one patient may be that patient's name.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data_prep.corpus.shard_format import parts, read_sections
from data_prep.tokenizers import Tokenizer


@dataclass(frozen=True)
class Rarity:
    """By vocabulary entry, the number of groups that it occurs in, counted up to `limit`."""

    groups_V: NDArray[np.int64]
    limit: int
    revealing_V: NDArray[np.bool_]  # False for special tokens and single characters

    @property
    def rare_V(self) -> NDArray[np.bool_]:
        """Entries in fewer than `limit` groups that could name someone."""
        return self.revealing_V & (self.groups_V < self.limit)

    def by_groups(self) -> list[tuple[int, int]]:
        """Return (number of groups, entries that occur in so many), below `limit`."""
        counts = np.bincount(self.groups_V[self.rare_V], minlength=self.limit)
        return [(number, int(counts[number])) for number in range(self.limit)]


def count_groups(shards: Path, tokenizer: Tokenizer, limit: int) -> Rarity:
    """Read the training text once; memory is proportional to vocabulary times `limit`.

    A document without a group counts as a group of its own.
    """
    seen_VK = np.zeros((tokenizer.size, limit), np.uint64)
    groups_V = np.zeros(tokenizer.size, np.int64)
    for tar in dict.fromkeys(part.path for part in parts(shards, "train")):
        for section in read_sections(tar):
            encoded = tokenizer.encode(section.sentences)
            ids = np.unique(np.concatenate([encoded[n] for n in range(len(section.sentences))]))
            number = np.uint64(section.group_number + 1)
            ids = ids[groups_V[ids] < limit]
            new = ids[~(seen_VK[ids] == number).any(1)]
            seen_VK[new, groups_V[new]] = number
            groups_V[new] += 1
    pieces = [tokenizer.piece(number) for number in range(tokenizer.size)]
    special = {tokenizer.pad, tokenizer.unk, tokenizer.cls, tokenizer.sep, tokenizer.mask}
    revealing = [
        number not in special and len(piece.strip("#▁ ")) > 1 for number, piece in enumerate(pieces)
    ]
    return Rarity(groups_V, limit, np.array(revealing))
