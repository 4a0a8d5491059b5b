"""Runs of successive words (n-grams) as 64-bit hashes, computed for whole documents at once."""

import hashlib
import re
from collections.abc import Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from data_prep.text.scripts import SPACELESS

# In scripts without spaces between words, every character counts as a word.
WORD = re.compile(rf"[{SPACELESS}]|[^\W{SPACELESS}]+")
MOST_KNOWN = 1_000_000  # words whose hashes are remembered
FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no word of a run is lost

Hashes = NDArray[np.uint64]


def hash_words(words: Sequence[str], known: dict[str, int]) -> Hashes:
    """Return a 64-bit hash per word; `known` remembers hashes between calls, in place."""
    if len(known) > MOST_KNOWN:
        known.clear()
    for word in words:
        if word not in known:
            digest = hashlib.blake2b(word.encode(errors="replace"), digest_size=8).digest()
            known[word] = int.from_bytes(digest, "little")
    return np.fromiter((known[word] for word in words), np.uint64, len(words))


def runs_of(words: Hashes, lengths: Collection[int]) -> Iterator[tuple[int, Hashes]]:
    """Yield the hashes of all runs of these lengths, as (n, [W - n + 1]), of W hashed words.

    A length that exceeds W is left out.
    """
    hashed = np.zeros(len(words) + 1, np.uint64)
    for length in range(1, min(max(lengths, default=0), len(words)) + 1):
        hashed = hashed[:-1] * FACTOR + words[length - 1 :]
        if length in lengths:
            yield length, hashed
