"""The weight of each source: the expected number of copies of its documents in training.

`corpus.weights` sets weights directly. `corpus.temperature` T makes the shares of the sources more
equal, as multilingual BERT does: a source with share p of all text gets a share ∝ p^T (there
T = 0.7). Smoothing keeps the total amount of text; the weights may change it. Sizes are in bytes,
since words cannot be counted by spaces in every script (Chinese, for example).
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from data_prep.config import MOST_COPIES

DIGITS = 6  # weights are rounded: the last bit of a power differs between machines


def source_weights(
    sizes: Mapping[str, int], weights: Mapping[str, float], temperature: float
) -> dict[str, float]:
    """Return the expected number of copies of a document, by source.

    sizes: bytes of training text per source; weights: corpus.weights, 1 where a source has none.
    """
    total = sum(sizes.values())
    shares = {name: size / total for name, size in sizes.items() if size}
    smoothed = {name: share**temperature for name, share in shares.items()}
    scale = sum(smoothed.values())
    copies = {name: smoothed[name] / scale / share for name, share in shares.items()}
    return {
        name: round(min(weights.get(name, 1.0) * copies.get(name, 1.0), MOST_COPIES), DIGITS)
        for name in sizes
    }


def count_copies(
    weights: NDArray[np.float64], documents: NDArray[np.int64], seed: int, duplicates: int = 1
) -> NDArray[np.int64]:
    """Return how often each section is used [N]: `duplicates` × weight on average.

    weights, documents: the weight and the document number of each section [N].
    The fractional part is rounded up for that share of the documents, chosen by hash.
    """
    from data_prep.random import key, keys  # numba: 60 MB that the shard stage does not need

    chance = (keys(key(seed, "copies"), documents) >> np.uint64(32)) * 2.0**-32
    whole: NDArray[np.int64] = np.floor(weights * duplicates + chance).astype(np.int64)
    return whole
