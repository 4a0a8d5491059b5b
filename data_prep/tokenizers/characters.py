"""Words as character ids, with the ids of bilm-tf and AllenNLP.

A word is `max_characters` ids: begin-of-word, its UTF-8 bytes (truncated to fit), end-of-word,
padding. `<S>` and `</S>` have one symbol of their own instead of bytes. Every id is its symbol
below plus 1, because AllenNLP uses 0 for positions without a word.

W words, C characters per word
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_CHARACTERS = 50
BEGIN_SENTENCE, END_SENTENCE = "<S>", "</S>"
# 0 to 255 are bytes.
BEGIN_SENTENCE_SYMBOL, END_SENTENCE_SYMBOL, BEGIN_WORD, END_WORD, PADDING = range(256, 261)
ALPHABET = 262  # number of character ids, including 0


class Spelling:
    """Looks up the character ids of numbered words; all bytes are in one buffer."""

    def __init__(self, words: Sequence[str], max_characters: int = MAX_CHARACTERS) -> None:
        room = max_characters - 2  # without begin-of-word and end-of-word
        spelt = [_bytes(word)[:room] for word in words]
        self._max_characters = max_characters
        self._lengths = np.array([len(each) for each in spelt], np.int64)
        self._starts = np.cumsum(self._lengths) - self._lengths
        # The extra byte keeps index 0 valid for an empty vocabulary.
        self._buffer = np.frombuffer(b"".join(spelt) + b"\0", np.uint8)
        self._sentence_symbols = {
            number: symbol
            for number, word in enumerate(words)
            if (symbol := _SENTENCE_SYMBOLS.get(word)) is not None
        }

    def characters(self, words_W: NDArray[Any]) -> NDArray[np.uint16]:
        """Return the character ids [W, C] of the words with these numbers."""
        lengths_W1 = self._lengths[words_W][:, None]
        places_C = np.arange(self._max_characters) - 1  # index of the byte in its word
        is_byte = (places_C >= 0) & (places_C < lengths_W1)
        sources = np.where(is_byte, self._starts[words_W][:, None] + places_C, 0)
        characters_WC = np.where(is_byte, self._buffer[sources].astype(np.uint16), PADDING)
        characters_WC[:, 0] = BEGIN_WORD
        np.put_along_axis(characters_WC, lengths_W1 + 1, END_WORD, axis=1)
        for number, symbol in self._sentence_symbols.items():
            characters_WC[words_W == number, 1] = symbol
        return characters_WC + np.uint16(1)


_SENTENCE_SYMBOLS = {BEGIN_SENTENCE: BEGIN_SENTENCE_SYMBOL, END_SENTENCE: END_SENTENCE_SYMBOL}


def _bytes(word: str) -> bytes:
    """Return the UTF-8 bytes of a word, without lone surrogates.

    `<S>` and `</S>` get one placeholder byte, which their symbol replaces.
    """
    return b"\0" if word in _SENTENCE_SYMBOLS else word.encode("utf-8", "ignore")


def character_ids(words: Sequence[str], max_characters: int = MAX_CHARACTERS) -> NDArray[np.uint16]:
    """Return the character ids [W, C] of these words."""
    return Spelling(words, max_characters).characters(np.arange(len(words)))


def symbol_counts(characters_WC: NDArray[Any]) -> NDArray[np.int64]:
    """Return the number of symbols of each word [W] that are no padding."""
    counts: NDArray[np.int64] = (characters_WC != PADDING + 1).sum(1)
    return counts
