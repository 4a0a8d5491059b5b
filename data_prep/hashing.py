"""Hash functions as plain expressions: numpy applies them to arrays, numba compiles them for loops.

A caller in compiled code wraps one first: `njit(inline="always")(splitmix64)`.
"""

from typing import Any

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # SplitMix64's increment
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)
FNV_START = np.uint64(0xCBF29CE484222325)
FNV_PRIME = np.uint64(0x100000001B3)


def splitmix64(key: Any, number: Any) -> Any:
    """Return output `number` of the SplitMix64 generator that starts at `key`.

    See Steele et al., 2014. Both are uint64; 64-bit overflow is part of the function.
    """
    bits = key + GOLDEN * (number + np.uint64(1))
    bits = (bits ^ (bits >> np.uint64(30))) * FIRST
    bits = (bits ^ (bits >> np.uint64(27))) * SECOND
    return bits ^ (bits >> np.uint64(31))


def fnv1a(hashed: Any, value: Any) -> Any:
    """Return the FNV-1a hash of a sequence, from the hash of its beginning and its next value.

    The hash of the empty sequence is `FNV_START`.
    """
    return (hashed ^ value) * FNV_PRIME
