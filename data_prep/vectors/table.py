"""A table of word vectors on disk: words.txt, one word per line; vectors.npy, a row per word."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data_prep.arrays import write_array
from data_prep.errors import SesameError
from data_prep.files import atomic_write, write_atomically

WORDS, VECTORS = "words.txt", "vectors.npy"


@dataclass(frozen=True)
class VectorTable:
    """Words and their vectors."""

    words: list[str]
    vectors: NDArray[np.float32]  # [words, width]

    def write(self, folder: Path) -> None:
        """Write both files atomically."""
        write_atomically(folder / WORDS, "".join(f"{word}\n" for word in self.words))
        with atomic_write(folder / VECTORS) as stream:
            write_array(stream, self.vectors)


def read_table(folder: Path) -> VectorTable:
    """Open the table in a folder; the vectors are memory-mapped."""
    words = (folder / WORDS).read_text().removesuffix("\n").split("\n")
    vectors = np.load(folder / VECTORS, mmap_mode="r", allow_pickle=False)
    if len(words) != len(vectors):
        raise SesameError(
            f"{folder}: {len(words)} words but {len(vectors)} vectors; remove it and run again"
        )
    return VectorTable(words, vectors)
