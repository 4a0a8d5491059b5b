"""Read published word vectors.

    text    one word per line with its numbers, separated by spaces (GloVe); word2vec and fastText
            (.vec) have a first line with the number of words and dimensions
    binary  the .bin files of word2vec and fastText (vectors/binary.py)
    folder  one .npy matrix, and one .parquet file whose first column lists its words
If a word occurs twice, the first vector is used.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data_prep.errors import SesameError
from data_prep.reading.untrusted import file_size, open_array
from data_prep.vectors.binary import read_binary
from data_prep.vectors.table import VectorTable

LINE_BYTES = 1 << 20  # longest line of a text file
HEADER = re.compile(rb"\d{1,10} \d{1,5}")  # number of words and width
Floats = NDArray[np.float32]


def read_vectors(source: Path) -> VectorTable:
    """Read the vectors of a file or folder; raises SesameError if they are damaged."""
    if source.is_dir():
        return _unique(source, *_read_folder(source))
    if source.suffix == ".bin":
        return _unique(source, *read_binary(source))
    return _unique(source, *_read_text(source))


def source_files(source: Path) -> list[Path]:
    """List the files that `read_vectors` reads."""
    return [source] if source.is_file() else list(_matrix_and_words(source))


def _read_text(path: Path) -> tuple[list[str], Floats]:
    words, vectors = [], []
    for word, vector in _text_lines(path):
        words.append(word)
        vectors.append(vector)
    return words, np.stack(vectors) if words else np.empty((0, 0), np.float32)


def _text_lines(path: Path) -> Iterator[tuple[str, Floats]]:
    width = 0
    file_size(path)
    with open(path, "rb") as stream:
        for number, line in enumerate(iter(lambda: stream.readline(LINE_BYTES), b""), start=1):
            line = line.rstrip(b" \r\n")
            if number == 1 and HEADER.fullmatch(line):
                width = int(line.split()[1])
                continue
            # Split from the right: in some files words contain spaces.
            width = width or line.count(b" ")
            word, *numbers = line.rsplit(b" ", width)
            try:
                vector = np.array(numbers, np.float32)
            except ValueError:
                vector = np.zeros(0, np.float32)
            if len(vector) != width or not width:
                raise SesameError(
                    f"{path}:{number}: not a word and {width or 'its'} numbers separated by single "
                    "spaces; give a GloVe or word2vec text file, or a .bin file"
                )
            yield word.decode(errors="replace"), vector


def _read_folder(folder: Path) -> tuple[list[str], Floats]:
    from data_prep.reading.parquet import read_first_column  # pyarrow is slow to import

    matrix, words = _matrix_and_words(folder)
    vectors = open_array(matrix, "f", dimensions=2)
    listed = read_first_column(words, len(vectors))
    with np.errstate(over="ignore"):  # too large numbers become infinite; `_unique` refuses them
        return [str(word) for word in listed], vectors.astype(np.float32)


def _matrix_and_words(folder: Path) -> tuple[Path, Path]:
    matrices, lists = sorted(folder.glob("*.npy")), sorted(folder.glob("*.parquet"))
    if len(matrices) != 1 or len(lists) != 1:
        raise SesameError(
            f"{folder}: has {len(matrices)} .npy and {len(lists)} .parquet files; a folder of "
            "vectors must have one of each"
        )
    return matrices[0], lists[0]


def _unique(source: Path, words: list[str], vectors: Floats) -> VectorTable:
    """Build the table: each word once, without empty words and words with line breaks.

    Raises SesameError if a number is not finite.
    """
    if not np.isfinite(vectors).all():
        row = int(np.flatnonzero(~np.isfinite(vectors).all(1))[0])
        raise SesameError(f"{source}: vector {row + 1} holds a number that is not finite")
    first: dict[str, int] = {}
    for row, word in enumerate(words):
        if word and not any(mark in word for mark in "\n\r"):
            first.setdefault(word, row)
    if not first:
        raise SesameError(f"{source}: holds no words with vectors")
    return VectorTable(list(first), vectors[list(first.values())])
