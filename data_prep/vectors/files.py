"""Read published word vectors.

    text    one word per line with its numbers, separated by spaces (GloVe); word2vec and fastText
            (.vec) have a first line with the number of words and dimensions
    binary  the .bin files of word2vec and fastText, read by gensim
    folder  one .npy matrix, and one .parquet file whose first column lists its words
If a word occurs twice, the first vector is used.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data_prep.errors import SesameError
from data_prep.vectors.table import VectorTable

FASTTEXT_MAGIC = (793712314).to_bytes(4, "little")
Floats = NDArray[np.float32]


def read_vectors(source: Path) -> VectorTable:
    """Read the vectors of a file or folder; raises SesameError if they are damaged."""
    if source.is_dir():
        return _unique(source, *_read_folder(source))
    if source.suffix == ".bin":
        return _unique(source, *_read_binary(source))
    return _unique(source, *_read_text(source))


def source_files(source: Path) -> list[Path]:
    """List the files that `read_vectors` reads."""
    return [source] if source.is_file() else list(_matrix_and_words(source))


def _read_text(path: Path) -> tuple[list[str], Floats]:
    words, vectors = [], []
    for word, vector in _text_lines(path):
        words.append(word)
        vectors.append(vector)
    if not words:
        raise SesameError(f"{path}: holds no vectors")
    return words, np.stack(vectors)


def _text_lines(path: Path) -> Iterator[tuple[str, Floats]]:
    width = 0
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, start=1):
            line = line.rstrip(b" \r\n")
            if number == 1 and re.fullmatch(rb"\d+ \d+", line):
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


def _read_binary(path: Path) -> tuple[list[str], Floats]:
    from gensim.models import KeyedVectors
    from gensim.models.fasttext import load_facebook_vectors

    with open(path, "rb") as stream:
        is_fasttext = stream.read(4) == FASTTEXT_MAGIC
    try:
        if is_fasttext:
            found = load_facebook_vectors(str(path))
            words = list(found.index_to_key)
            return words, np.stack([found[word] for word in words])
        found = KeyedVectors.load_word2vec_format(str(path), binary=True, unicode_errors="replace")
    except (ValueError, EOFError, IndexError, RuntimeError) as error:
        raise SesameError(
            f"{path}: damaged, or not a binary file of word2vec or fastText; download it again"
        ) from error
    return list(found.index_to_key), np.asarray(found.vectors, np.float32)


def _read_folder(folder: Path) -> tuple[list[str], Floats]:
    import pyarrow.parquet

    matrix, words = _matrix_and_words(folder)
    try:
        vectors = np.load(matrix, allow_pickle=False)
    except ValueError as error:
        raise SesameError(f"{matrix}: damaged, or not a plain matrix of numbers") from error
    listed = pyarrow.parquet.read_table(words).column(0).to_pylist()
    if vectors.ndim != 2 or len(listed) != len(vectors):
        raise SesameError(
            f"{folder}: {words.name} lists {len(listed)} words, {matrix.name} is "
            f"{list(vectors.shape)}; they do not belong together"
        )
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
    return VectorTable(list(first), vectors[list(first.values())])
