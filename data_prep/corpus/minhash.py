"""MinHash signatures of documents: texts that share most of their word triples share most values.

Two signatures agree in a share of their values that estimates the Jaccard similarity of the texts
(Broder, 1997). Equal bands of successive values find the pairs that are worth comparing.
"""

import re

import numpy as np
from numpy.typing import NDArray

from data_prep.text.scripts import SPACELESS

SIGNATURE_VALUES = 128
SHINGLE = 3  # words
SEED = 1
LEAST_FOUND = 0.98  # share of pairs just at the threshold that have to be compared

WORD = re.compile(rf"[{SPACELESS}]|[^\W{SPACELESS}]+")  # or a character, where words have no ends


def signature(text: str) -> NDArray[np.uint32]:
    """The signature of a text, in a row by itself."""
    from rensa import CMinHash

    words = WORD.findall(text.lower())
    last = max(len(words) - SHINGLE + 1, 1)
    minhash = CMinHash(num_perm=SIGNATURE_VALUES, seed=SEED)
    minhash.update([" ".join(words[start : start + SHINGLE]) for start in range(last)])
    return np.array([minhash.digest()], np.uint32)


def rows_per_band(threshold: float) -> int:
    """The longest bands that find enough of the pairs at the threshold.

    A pair of similarity s has an equal band of r values with s^r, and one of 128 / r bands with
    1 - (1 - s^r)^(128 / r): for 0.8, 18 bands of 7 find 98.5 %.
    """

    def found(rows: int) -> float:
        return float(1 - (1 - threshold**rows) ** (SIGNATURE_VALUES // rows))

    return max(rows for rows in range(1, 33) if rows == 1 or found(rows) >= LEAST_FOUND)


def band_hashes(signatures: NDArray[np.uint32], rows: int) -> list[NDArray[np.uint64]]:
    """A hash for each band of each signature; FNV-1a over the band's values."""
    hashes = []
    for first in range(0, SIGNATURE_VALUES - rows + 1, rows):
        hashed = np.full(len(signatures), 0xCBF29CE484222325, np.uint64)
        for column in range(first, first + rows):
            hashed = (hashed ^ signatures[:, column]) * np.uint64(0x100000001B3)
        hashes.append(hashed)
    return hashes
