"""Read the .bin files of word2vec and fastText.

    word2vec   "words width\n", then per word: the word, a space, its numbers
    fastText   settings, a dictionary, and one matrix of word and n-gram vectors; the vector of a
               word is the mean of its own row and those of its character n-grams
Numbers are little-endian. The file is mapped into memory; all counts are compared with its length
before anything is allocated, so a damaged file costs neither memory nor time.
"""

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data_prep.errors import SesameError
from data_prep.reading.untrusted import file_size

FASTTEXT_MAGIC = 793712314
WORD_BYTES = 4096  # longest word
HEADER_BYTES = 64  # longest first line of a word2vec file
MOST_NGRAM = 64  # longest character n-gram; fastText's default is 6
Floats = NDArray[np.float32]


def read_binary(path: Path) -> tuple[list[str], Floats]:
    """Return the words and their vectors; raises SesameError if the file is damaged."""
    if not file_size(path):
        raise SesameError(f"{path}: is empty; download it again")
    with open(path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        file = _File(path, data)
        if file.has(4) and file.unpack("i") == (FASTTEXT_MAGIC,):
            return _read_fasttext(file)
        file.position = 0
        return _read_word2vec(file)


@dataclass
class _File:
    """A mapped file and the position of the next value in it."""

    path: Path
    data: mmap.mmap
    position: int = 0

    def damaged(self, found: str) -> SesameError:
        return SesameError(
            f"{self.path}, byte {self.position}: damaged, or not a binary file of word2vec or "
            f"fastText ({found}); download it again"
        )

    def has(self, count: int) -> bool:
        """Return True if at least `count` bytes follow."""
        return self.position + count <= len(self.data)

    def unpack(self, form: str) -> tuple[int, ...]:
        """Return the next values, in the notation of `struct` without alignment."""
        return struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))

    def word(self, end: bytes) -> str:
        """Return the text up to the byte `end`, which is skipped."""
        found = self.data.find(end, self.position, self.position + WORD_BYTES + 1)
        if found < 0:
            raise self.damaged("a word does not end")
        word = self.data[self.position : found].decode(errors="replace")
        self.position = found + 1
        return word

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        if not self.has(count):
            raise self.damaged("the file ends too early")
        self.position += count
        return self.data[self.position - count : self.position]


def _read_word2vec(file: _File) -> tuple[list[str], Floats]:
    end = file.data.find(b"\n", 0, HEADER_BYTES)
    stated = file.data[: max(end, 0)].split()
    if len(stated) != 2 or not all(number.isdigit() for number in stated):
        raise file.damaged("the first line is not a count of words and a width")
    count, width = map(int, stated)
    file.position = end + 1
    # A word has at least a space and its numbers.
    if not count or not width or not file.has(count * (4 * width + 1)):
        raise file.damaged(f"it cannot hold {count:,} words of {width:,} numbers")
    words, vectors = [], np.empty((count, width), np.float32)
    for row in range(count):
        words.append(file.word(b" ").lstrip("\n"))
        vectors[row] = np.frombuffer(file.take(4 * width), "<f4")
    return words, vectors


def _read_fasttext(file: _File) -> tuple[list[str], Floats]:
    # Settings: version, width, …, buckets of n-grams, shortest and longest n-gram, …
    _, width, *_, buckets, shortest, longest, _ = file.unpack("13i")
    file.unpack("d")
    count, words_in_file, labels = file.unpack("3i")
    _, pruned = file.unpack("2q")
    if labels or pruned > 0:
        raise SesameError(f"{file.path}: supervised and pruned fastText models cannot be read")
    # An entry has at least the end of its word, a count and a type.
    if not 0 < count == words_in_file or not file.has(10 * count):
        raise file.damaged(f"it cannot hold {count:,} words")
    if longest > MOST_NGRAM or min(buckets, shortest, longest) < 0:
        raise file.damaged("its settings of n-grams are impossible")
    words = []
    for _ in range(count):
        words.append(file.word(b"\0"))
        file.unpack("qb")
    is_quantized, rows, columns = file.unpack("?2q")
    if is_quantized:
        raise SesameError(f"{file.path}: quantized fastText models cannot be read")
    if columns != width or width < 1 or rows != count + buckets:
        raise file.damaged(
            f"its matrix is {rows:,} by {columns:,}, not {count + buckets:,} by {width:,}"
        )
    if not file.has(4 * rows * columns):
        raise file.damaged("the file ends too early")
    matrix = np.memmap(file.path, "<f4", "r", file.position, (rows, columns))
    return words, _add_ngrams(words, matrix, shortest, longest)


def _add_ngrams(words: list[str], matrix: Floats, shortest: int, longest: int) -> Floats:
    """Return the vectors of words; `matrix` has a row per word, then one per bucket of n-grams."""
    from gensim.models.fasttext import ft_ngram_hashes

    vectors, ngrams = np.array(matrix[: len(words)]), matrix[len(words) :]
    for row, word in enumerate(words if len(ngrams) else []):
        found = ft_ngram_hashes(word, shortest, longest, len(ngrams))
        vectors[row] = (vectors[row] + ngrams[found].sum(0)) / (len(found) + 1)
    return vectors
