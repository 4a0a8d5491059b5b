"""MinHash signatures of documents, to find near-duplicates.

The share of equal values in two signatures estimates the Jaccard similarity of the texts' shingles
(Broder, 1997): of their word triples, or of runs of seven letters. A wrong letter spoils three
triples of some eighteen letters, but only seven runs of seven. So two scans of one page with 2 %
wrong letters each share half of their runs of letters, and a third of their word triples.
Only documents with an equal band (a run of successive values) are compared.
"""

import re

import numpy as np
from numpy.typing import NDArray

from data_prep.hashing import FNV_START, fnv1a
from data_prep.text.word_runs import WORD

SIGNATURE_VALUES = 128
SHINGLE = 3  # words
RUN = 7  # letters; unrelated texts of 25,000 letters share 4 % of such runs, and 16 % of five
SEED = 1
NO_LETTER = re.compile(r"[\W_]+")
LEAST_FOUND = 0.98  # least probability that a pair exactly at the threshold is compared


def signature(text: str, over: str = "words") -> NDArray[np.uint32]:
    """Return the MinHash signature of a text, [1, SIGNATURE_VALUES].

    over: the shingles, of `words` or of `characters` (corpus.near_duplicates_over).
    """
    from rensa import CMinHash

    minhash = CMinHash(num_perm=SIGNATURE_VALUES, seed=SEED)
    minhash.update(word_shingles(text) if over == "words" else letter_shingles(text))
    return np.array([minhash.digest()], np.uint32)


def word_shingles(text: str) -> list[str]:
    """Return the word triples of a text."""
    words = WORD.findall(text.lower())
    last = max(len(words) - SHINGLE + 1, 1)
    return [" ".join(words[start : start + SHINGLE]) for start in range(last)]


def letter_shingles(text: str) -> list[str]:
    """Return the runs of RUN letters and digits of a text, without what is between words."""
    letters = NO_LETTER.sub("", text.lower())
    return [letters[start : start + RUN] for start in range(max(len(letters) - RUN + 1, 1))]


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
