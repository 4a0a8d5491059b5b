"""Words as characters, in the numbering that bilm-tf and AllenNLP share.

A word is `max_characters` numbers: begin-of-word, its UTF-8 bytes (cut to fit), end-of-word,
padding. `<S>` and `</S>` have one symbol of their own instead of bytes. All are one higher than the
symbols below, because 0 is AllenNLP's mask of positions without a word.

W words, C characters a word
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_CHARACTERS = 50
BEGIN_SENTENCE, END_SENTENCE = "<S>", "</S>"
# 0 to 255 are bytes.
BEGIN_SENTENCE_SYMBOL, END_SENTENCE_SYMBOL, BEGIN_WORD, END_WORD, PADDING = range(256, 261)
ALPHABET = 262  # the symbols, and the mask


class Spelling:
    """The characters of numbered words, from one buffer of all their bytes."""

    def __init__(self, words: Sequence[str], max_characters: int = MAX_CHARACTERS) -> None:
        room = max_characters - 2  # begin and end take one each
        spelt = [_bytes(word)[:room] for word in words]
        self._max_characters = max_characters
        self._lengths = np.array([len(each) for each in spelt], np.int64)
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._buffer = np.frombuffer(b"".join(spelt) + b"\0", np.uint8)  # never empty
        self._sentence_symbols = {
            number: symbol
            for number, word in enumerate(words)
            if (symbol := _SENTENCE_SYMBOLS.get(word)) is not None
        }

    def characters(self, words_W: NDArray[Any]) -> NDArray[np.uint16]:
        """The characters [W, C] of the words with these numbers."""
        lengths_W1 = self._lengths[words_W][:, None]
        places_C = np.arange(self._max_characters) - 1  # of a byte in its word
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
    """UTF-8, without what it cannot spell (lone surrogates); a sentence's end has room for one."""
    return b"\0" if word in _SENTENCE_SYMBOLS else word.encode("utf-8", "ignore")


def character_ids(words: Sequence[str], max_characters: int = MAX_CHARACTERS) -> NDArray[np.uint16]:
    """The characters [W, C] of these words."""
    return Spelling(words, max_characters).characters(np.arange(len(words)))
