"""Split texts into words: the unit of word vectors, of ELMo, and of tasks with answer spans."""

import re
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import overload

import numpy as np
from numpy.typing import NDArray

from data_prep.text.scripts import CHINESE

ASCII_MARKS = r"!-/:-@\[-`{-~"

# Rules by which a text is split into words.
PUNCTUATION = "punctuation"  # at white space; punctuation and Chinese characters stand alone
ADDRESSES = "addresses"  # the same, but @names, #tags, web and mail addresses are whole
MAIL = r"[A-Za-z0-9.+_-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})+"


def split_like_bert(text: str) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the words of a text, and their character ranges [words, 2]: start, end (excluded).

    The text is split like BERT's pre-tokenizer does. So with BERT's WordPiece, a word has the same
    tokens alone and in the text. With other tokenizers it may not: use `TextWords` there.
    """
    return _split(text, PUNCTUATION)


def _split(text: str, rule: str) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    found = list(_word_pattern(rule).finditer(text))
    spans = np.array([match.span() for match in found], np.int64).reshape(-1, 2)
    return tuple(match[0] for match in found), spans


@dataclass(frozen=True)
class TextWords(Sequence[str]):
    """Successive words of a text, with a reference to the whole text.

    Encoders tokenize the whole text and align its tokens with these words. A slice refers to the
    same text. The text, the rule and the two flags determine the words, so objects in which these
    and the range are the same are equal (for one tokenizer).
    """

    text: str
    every: tuple[str, ...] = field(compare=False, repr=False)  # all words of the text
    characters: NDArray[np.int64] = field(compare=False, repr=False)  # of all words, [words, 2]
    first: int
    last: int  # excluded
    is_spaced: bool = False  # True if the words are separated by spaces only
    is_divided: bool = False  # True if the words are parts of words: see `divide`
    rule: str = PUNCTUATION

    @classmethod
    def of(cls, text: str, rule: str = PUNCTUATION) -> "TextWords":
        """Split a text by a rule; PUNCTUATION is that of `split_like_bert`."""
        words, characters = _split(text, rule)
        return cls(text, words, characters, 0, len(words), rule=rule)

    @classmethod
    def joined(cls, words: Sequence[str]) -> "TextWords":
        """Take these words; the text is the words joined by single spaces."""
        lengths = np.array([len(word) for word in words], np.int64)
        ends = np.cumsum(lengths + 1) - 1
        characters = np.stack([ends - lengths, ends], 1)
        return cls(" ".join(words), tuple(words), characters, 0, len(words), is_spaced=True)

    def divide(self, characters: NDArray[np.int64]) -> "TextWords":
        """Return other words of the same text, such as a tokenizer's tokens, by their ranges."""
        parts = tuple(self.text[start:end] for start, end in characters.tolist())
        return TextWords(self.text, parts, characters, 0, len(parts), is_divided=True)

    @property
    def own_characters(self) -> NDArray[np.int64]:
        """The character ranges of these words [words, 2]: start, end (excluded)."""
        return self.characters[self.first : self.last]

    def __len__(self) -> int:
        return self.last - self.first

    def __iter__(self) -> Iterator[str]:
        return iter(self.every[self.first : self.last])

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> "TextWords": ...

    def __getitem__(self, place: int | slice) -> "str | TextWords":
        if isinstance(place, slice):
            start, stop, step = place.indices(len(self))
            assert step == 1, "words of a slice follow each other"
            return replace(self, first=self.first + start, last=self.first + max(start, stop))
        return self.every[self.first : self.last][place]


@cache
def _word_pattern(rule: str) -> re.Pattern[str]:
    """Match runs of characters without white space; punctuation and Chinese match one by one."""
    marks = (
        c for c in map(chr, range(128, sys.maxunicode + 1)) if unicodedata.category(c)[0] == "P"
    )
    alone = ASCII_MARKS + "".join(marks) + CHINESE
    run = rf"[^{alone}\s]+"
    whole = {
        PUNCTUATION: (),
        ADDRESSES: (
            rf"(?<!\w)[@#]{run}(?:_{run})*",
            rf"(?:https?://|www\.)\S*[^{alone}\s]/?",
            MAIL,
        ),
    }
    return re.compile("|".join((*whole[rule], f"[{alone}]", run)))
