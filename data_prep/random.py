"""Counter-based random numbers: pure functions of a key and a number, without state.

Draw n of key k is output n of a SplitMix64 generator that starts at k. So the same (seed, epoch,
row, draw) gives the same number in any process, batch and order.
Numba caches a caller by the caller's file only: after a change here, remove the callers'
`__pycache__`.
"""

# mypy: disallow-untyped-decorators=False

import zlib
from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from data_prep.hashing import splitmix64

ALL_BITS = (1 << 64) - 1

_splitmix64 = njit(inline="always")(splitmix64)


@njit(cache=True, inline="always")
def draw(key: Any, number: Any) -> Any:
    """Return 64 random bits: draw `number` of `key`. The result may serve as a key itself."""
    return _splitmix64(key, np.uint64(number))


@njit(cache=True, inline="always")
def draw_below(key: Any, number: Any, limit: Any) -> Any:
    """Return a random integer in [0, limit); the bias, limit / 2³², is negligible."""
    return np.int64(((draw(key, number) >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32))


@njit(cache=True, inline="always")
def draw_unit(key: Any, number: Any) -> Any:
    """Return a random float in [0, 1)."""
    return np.float64(draw(key, number) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@njit(cache=True)
def permute(key: Any, index: Any, size: Any) -> Any:
    """Return the image of `index` under the permutation of range(size) that `key` chooses.

    A Feistel network of four rounds permutes the next power of four above `size`. Images outside
    the range are permuted again (cycle walking: Black and Rogaway, 2002).
    """
    half = 1
    while (1 << (2 * half)) < size:
        half += 1
    mask = np.uint64((1 << half) - 1)
    image = np.uint64(index)
    while True:
        left, right = image >> np.uint64(half), image & mask
        for turn in range(4):
            number = (np.uint64(turn) << np.uint64(32)) + right
            left, right = right, left ^ (draw(key, number) & mask)
        image = (left << np.uint64(half)) | right
        if image < np.uint64(size):
            return np.int64(image)


@njit(cache=True)
def _draw_all(key: Any, numbers: Any) -> Any:
    drawn = np.empty(len(numbers), np.uint64)
    for index in range(len(numbers)):
        drawn[index] = draw(key, numbers[index])
    return drawn


def keys(key: int, numbers: NDArray[np.int64] | NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the draws of `key` with these numbers [N], as uint64 [N]."""
    drawn: NDArray[np.uint64] = _draw_all(np.uint64(key), numbers)
    return drawn


@lru_cache
def key(seed: int, purpose: str, *numbers: int) -> int:
    """Return the key for a purpose under a seed; `numbers` distinguish cases of the purpose."""
    made = 0
    for number in (seed, zlib.crc32(purpose.encode()), *numbers):
        made = int(keys(made, np.array([number & ALL_BITS], np.uint64))[0])
    return made
