"""Texts as words: the unit of word vectors, of ELMo, and of answers that are spans of a text."""

import re
import sys
import unicodedata
from functools import cache

import numpy as np
from numpy.typing import NDArray

# Where BERT's tokenizer sets Chinese characters apart.
CHINESE = (
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b81f"
    "\U0002b820-\U0002ceaf\U0002f800-\U0002fa1f"
)
ASCII_MARKS = r"!-/:-@\[-`{-~"


def split_words(text: str) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """A text's words, and the characters of each as [words, 2]: first, one past the last.

    It is cut as BERT does before it makes pieces, so that its words have the pieces of the whole.
    """
    found = list(_word_pattern().finditer(text))
    spans = np.array([match.span() for match in found], np.int64).reshape(-1, 2)
    return tuple(match[0] for match in found), spans


@cache
def _word_pattern() -> re.Pattern[str]:
    """Runs of characters between white space; punctuation and Chinese stand alone."""
    marks = (
        c for c in map(chr, range(128, sys.maxunicode + 1)) if unicodedata.category(c)[0] == "P"
    )
    alone = ASCII_MARKS + "".join(marks) + CHINESE
    return re.compile(f"[{alone}]|[^{alone}\\s]+")
