"""Find the distinct words of text fast: a hash table over UTF-8 bytes, in numba.

The input is a buffer of texts, each ended by the byte 0xFF, which UTF-8 never uses. It is split
only at ASCII bytes, so that every word is valid UTF-8. A word gets the next number when it is first
seen. Scanning a buffer returns the numbers of its words in order, and the end of each text.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from data_prep.hashing import FNV_START, fnv1a

_fnv1a = njit(inline="always")(fnv1a)

# Byte classes: separates words, is a word by itself, is part of a word, ends a text.
SPACE, PUNCTUATION, LETTER, END = 0, 1, 2, 3
END_BYTE = 0xFF

# A slot of the table is 0 or the number of its word plus 1, and above it the highest bits of the
# word's hash: most other words are told apart without reading more memory.
NUMBER = np.uint64((1 << 32) - 1)
TAG = ~NUMBER

# Fields of the state from which a scan resumes after the table has grown.
POSITION, TEXT, FOUND, WORDS, BYTES = range(5)


def byte_classes(punctuation_stands_alone: bool) -> NDArray[np.uint8]:
    """Return the class of each byte [256]; punctuation splits words only if asked for."""
    classes = np.full(256, LETTER, np.uint8)
    classes[list(b" \t\n\r")] = SPACE
    classes[END_BYTE] = END
    if punctuation_stands_alone:
        classes[list(b"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")] = PUNCTUATION
    return classes


def as_buffer(texts: Sequence[bytes]) -> NDArray[np.uint8]:
    """Concatenate the texts, each followed by the end byte."""
    ended = b"\xff".join([*texts, b""])
    return np.frombuffer(ended, np.uint8)


def text_buffer(texts: Sequence[str]) -> NDArray[np.uint8]:
    """Return `as_buffer` of the texts in UTF-8; fast if no text has a line break."""
    joined = "\n".join([*texts, ""])
    if joined.count("\n") != len(texts):
        return as_buffer([text.encode() for text in texts])
    return np.frombuffer(joined.encode().replace(b"\n", b"\xff"), np.uint8)


@njit(cache=True)  # type: ignore[untyped-decorator]
def _scan(
    buffer: NDArray[np.uint8],
    classes: NDArray[np.uint8],
    slots: NDArray[np.uint64],
    hashes: NDArray[np.uint64],
    starts: NDArray[np.int64],
    arena: NDArray[np.uint8],
    found: NDArray[np.int32],
    text_ends: NDArray[np.int64],
    state: NDArray[np.int64],
) -> bool:
    """Number the words of `buffer`, starting from `state`; return False if the table is full.

    Changes in place: the table (`slots`, `hashes`, `starts`, `arena`), the output (`found`,
    `text_ends`) and `state`. After False, grow the table and call it again.
    """
    mask = np.uint64(slots.size - 1)
    position, text, count = state[POSITION], state[TEXT], state[FOUND]
    words, used = state[WORDS], state[BYTES]
    complete = True
    while position < buffer.size:
        kind = classes[buffer[position]]
        if kind in (SPACE, END):
            if kind == END:
                text_ends[text] = count
                text += 1
            position += 1
            continue
        hashed = FNV_START
        end = position
        while True:
            hashed = _fnv1a(hashed, np.uint64(buffer[end]))
            end += 1
            if kind == PUNCTUATION or classes[buffer[end]] != LETTER:
                break
        hashed ^= hashed >> np.uint64(32)
        length = end - position
        tag = hashed & TAG
        slot = hashed & mask
        word = -1
        while slots[slot] != 0:
            if slots[slot] & TAG == tag:
                candidate = int(slots[slot] & NUMBER) - 1
                start = starts[candidate]
                if starts[candidate + 1] - start == length:
                    same = True
                    for i in range(length):
                        if arena[start + i] != buffer[position + i]:
                            same = False
                            break
                    if same:
                        word = candidate
                        break
            slot = (slot + np.uint64(1)) & mask
        if word < 0:
            if words == hashes.size or used + length > arena.size:
                complete = False
                break
            word = words
            slots[slot] = tag | np.uint64(word + 1)
            hashes[word] = hashed
            for i in range(length):
                arena[used + i] = buffer[position + i]
            used += length
            words += 1
            starts[words] = used
        found[count] = word
        count += 1
        position = end
    state[POSITION], state[TEXT], state[FOUND] = position, text, count
    state[WORDS], state[BYTES] = words, used
    return complete


@njit(cache=True)  # type: ignore[untyped-decorator]
def _place(slots: NDArray[np.uint64], hashes: NDArray[np.uint64], words: int) -> None:
    """Insert the first `words` words into `slots`, in place; the slots must be empty."""
    mask = np.uint64(slots.size - 1)
    for word in range(words):
        slot = hashes[word] & mask
        while slots[slot] != 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = (hashes[word] & TAG) | np.uint64(word + 1)


class WordTable:
    """A table of distinct words, numbered from 0 in the order in which they were first seen."""

    def __init__(self, punctuation_stands_alone: bool = False) -> None:
        self._classes = byte_classes(punctuation_stands_alone)
        self.clear()

    def clear(self) -> None:
        """Remove all words."""
        self._slots = np.zeros(1 << 14, np.uint64)  # always twice as many as words fit
        self._hashes = np.empty(1 << 13, np.uint64)
        self._starts = np.zeros((1 << 13) + 1, np.int64)
        self._arena = np.empty(1 << 16, np.uint8)
        self._words = 0

    def __len__(self) -> int:
        return self._words

    @property
    def size(self) -> int:
        """The total number of bytes of the distinct words."""
        return int(self._starts[self._words])

    def words(self, first: int = 0) -> list[bytes]:
        """Return the words with numbers `first` and above."""
        bounds = self._starts[first : self._words + 1]
        origin = int(bounds[0])
        joined = self._arena[origin : int(bounds[-1])].tobytes()
        cuts = (bounds - origin).tolist()
        return [joined[a:b] for a, b in pairwise(cuts)]

    def number(
        self, buffer: NDArray[np.uint8], texts: int
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Number the words of a buffer of `texts` texts; adds new words to the table.

        Returns the word numbers in order, and the end of each text in them [texts].
        """
        found = np.empty(buffer.size, np.int32)
        text_ends = np.empty(texts, np.int64)
        state = np.array([0, 0, 0, self._words, self.size], np.int64)
        while not _scan(
            buffer, self._classes, self._slots, self._hashes, self._starts, self._arena,
            found, text_ends, state,
        ):  # fmt: skip
            self._words = int(state[WORDS])
            self._grow(buffer.size)
        self._words = int(state[WORDS])
        assert int(state[TEXT]) == texts, "every text of a buffer ends with the end byte"
        return found[: int(state[FOUND])], text_ends

    def _grow(self, longest_word: int) -> None:
        """Double the capacity, and make room for a word of `longest_word` bytes."""
        self._hashes = _lengthened(self._hashes, 2 * self._hashes.size)
        self._starts = _lengthened(self._starts, self._hashes.size + 1)
        self._arena = _lengthened(self._arena, 2 * self._arena.size + longest_word)
        self._slots = np.zeros(2 * self._hashes.size, np.uint64)
        _place(self._slots, self._hashes, self._words)


def _lengthened(array: NDArray[Any], size: int) -> NDArray[Any]:
    longer = np.empty(size, array.dtype)
    longer[: array.size] = array
    return longer
