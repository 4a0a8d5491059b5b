"""MinHash signatures of documents, to find near-duplicates.

The share of equal values in two signatures estimates the Jaccard similarity of the texts' word
triples (Broder, 1997). Only documents with an equal band (a run of successive values) are compared.
"""

import numpy as np
from numpy.typing import NDArray

from data_prep.hashing import FNV_START, fnv1a
from data_prep.text.word_runs import WORD

SIGNATURE_VALUES = 128
SHINGLE = 3  # words
SEED = 1
LEAST_FOUND = 0.98  # least probability that a pair exactly at the threshold is compared


def signature(text: str) -> NDArray[np.uint32]:
    """Return the MinHash signature of a text, [1, SIGNATURE_VALUES]."""
    from rensa import CMinHash

    words = WORD.findall(text.lower())
    last = max(len(words) - SHINGLE + 1, 1)
    minhash = CMinHash(num_perm=SIGNATURE_VALUES, seed=SEED)
    minhash.update([" ".join(words[start : start + SHINGLE]) for start in range(last)])
    return np.array([minhash.digest()], np.uint32)


def rows_per_band(threshold: float) -> int:
    """Return the largest band size r that finds at least LEAST_FOUND of the pairs at `threshold`.

    A pair of similarity s agrees in one band with probability s^r, and in at least one of 128 / r
    bands with probability 1 - (1 - s^r)^(128 / r). For s = 0.8, 18 bands of 7 find 98.5 %.
    """

    def found(rows: int) -> float:
        return float(1 - (1 - threshold**rows) ** (SIGNATURE_VALUES // rows))

    return max(rows for rows in range(1, 33) if rows == 1 or found(rows) >= LEAST_FOUND)


def band_hashes(signatures: NDArray[np.uint32], rows: int) -> list[NDArray[np.uint64]]:
    """Return one array of hashes [N] per band of the N signatures; FNV-1a over the values."""
    hashes = []
    for first in range(0, SIGNATURE_VALUES - rows + 1, rows):
        hashed = np.full(len(signatures), FNV_START)
        for column in range(first, first + rows):
            hashed = fnv1a(hashed, signatures[:, column])
        hashes.append(hashed)
    return hashes
