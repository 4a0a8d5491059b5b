"""Write vectors to .safetensors or .npy files, batch by batch, in bounded memory.

N vectors, L layers, D width
"""

import json
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_prep.files import atomic_write
from data_prep.progress import progress

Ints = NDArray[np.int64]
Vectors = NDArray[np.float32]
Batch = tuple[Ints, Vectors]  # numbers of vectors, and the vectors


def write_vectors(
    out: Path, total: int, shape: tuple[int, ...], batches: Iterable[Batch], offsets: Ints | None
) -> None:
    """Write `total` vectors of a shape [L, D] or [D], which come in any order.

    A .safetensors file holds `vectors` and, if they are given, `offsets`. A .npy file holds the
    vectors; the offsets go to `.offsets.npy` beside it.
    """
    if out.suffix == ".npy":
        header = _npy_header(total, shape)
        if offsets is not None:
            with atomic_write(out.with_suffix(".offsets.npy")) as stream:
                np.save(stream, offsets)
    else:
        header = _safetensors_header(total, shape, offsets)
    with atomic_write(out) as stream, progress("embed", total) as bar:
        stream.write(header)
        stream.truncate(len(header) + 4 * total * int(np.prod(shape)))
        stream.flush()
        vectors = np.memmap(
            stream.name, np.float32, "r+", offset=len(header), shape=(total, *shape)
        )
        for numbers, values in batches:
            vectors[numbers] = values
            bar.advance(len(numbers))
        vectors.flush()


def _npy_header(total: int, shape: tuple[int, ...]) -> bytes:
    stream = BytesIO()
    described = {"descr": "<f4", "fortran_order": False, "shape": (total, *shape)}
    np.lib.format.write_array_header_1_0(stream, described)
    return stream.getvalue()


def _safetensors_header(total: int, shape: tuple[int, ...], offsets: Ints | None) -> bytes:
    """Return all bytes before the vectors: the header's size, the header, the offsets."""
    start = 0 if offsets is None else offsets.nbytes
    end = start + 4 * total * int(np.prod(shape))
    described: dict[str, Any] = {}
    if offsets is not None:
        described["offsets"] = {
            "dtype": "I64", "shape": list(offsets.shape), "data_offsets": [0, start]
        }  # fmt: skip
    described["vectors"] = {
        "dtype": "F32", "shape": [total, *shape], "data_offsets": [start, end]
    }  # fmt: skip
    text = json.dumps(described).encode()
    text += b" " * (-len(text) % 8)  # the format requires data at multiples of 8 bytes
    before = b"" if offsets is None else offsets.astype("<i8").tobytes()
    return len(text).to_bytes(8, "little") + text + before
