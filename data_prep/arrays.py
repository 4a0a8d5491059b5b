"""Write NumPy arrays so that a full disk is reported as such."""

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from data_prep.files import naming


class _Plain:
    """A stream that NumPy does not take for a file.

    For a file it calls `tofile`, whose error on a full disk has neither a number nor a name.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, content: bytes) -> int:
        return self._stream.write(content)


def write_array(stream: BinaryIO, array: NDArray[Any]) -> None:
    """Write an array in the .npy format, without objects."""
    np.save(_Plain(stream), array, allow_pickle=False)


def save_array(path: Path, array: NDArray[Any]) -> None:
    """Write an array as the .npy file `path`."""
    with naming(path), open(path, "wb") as stream:
        write_array(stream, array)
