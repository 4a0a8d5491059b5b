"""Filters that drop clean documents which are not running text; each has a threshold and a name."""

from itertools import pairwise

from data_prep.config import CorpusConfig
from data_prep.text.scripts import SPACELESS_CHARACTER

ASCII = bytes(range(128))
ASCII_LETTERS = bytes(range(ord("A"), ord("Z") + 1)) + bytes(range(ord("a"), ord("z") + 1))
RUN_WORDS = 5  # as the shortest n-grams of Gopher's filters (Rae et al., 2021, table A1)
MEASURED_WORDS = 5000  # a document that repeats itself does so from its beginning
LONGEST_USUAL_WORD = 12  # largest mean word length, in characters, of text with spaces


def reason_to_drop(text: str, config: CorpusConfig) -> str | None:
    """Return the name of the first filter that rejects a clean text, or None."""
    if not text:
        return "empty"
    if len(text) < config.min_characters:
        return "min_characters"
    if config.max_characters is not None and len(text) > config.max_characters:
        return "max_characters"
    if config.min_letters and letter_share(text) < config.min_letters:
        return "min_letters"
    if config.max_repetition < 1 and is_repetitive(text, config.max_repetition):
        return "max_repetition"
    return None


def letter_share(text: str) -> float:
    """Return the share of letters among a text's characters."""
    if not text:
        return 0.0
    data = text.encode()
    others = data.translate(None, ASCII_LETTERS)
    letters = len(data) - len(others)
    if not text.isascii():
        letters += sum(map(str.isalpha, others.translate(None, ASCII).decode()))
    return letters / len(text)


def is_repetitive(text: str, most: float) -> bool:
    """Return True if more than `most` of the five-word runs repeat an earlier one.

    Only the first MEASURED_WORDS words are read. The numbers of repeated words and pairs are upper
    bounds for the number of repeated runs, and decide most documents at little cost.
    """
    words = first_words(text, MEASURED_WORDS)
    allowed = most * (len(words) - RUN_WORDS + 1)
    if len(words) - len(set(words)) <= allowed:
        return False
    if len(words) - 1 - len(set(pairwise(words))) <= allowed:
        return False
    return repeated_share(words) > most


def first_words(text: str, most: int) -> list[str]:
    """Return the first words of a text: split at spaces, or characters in scripts without them."""
    words = text.split(None, most)[:most]
    if text.isascii() or sum(map(len, words)) <= LONGEST_USUAL_WORD * len(words):
        return words
    return list(text[:most]) if SPACELESS_CHARACTER.search(text) else words


def repeated_share(words: list[str]) -> float:
    """Return the share of five-word runs that occur earlier in the text."""
    runs = len(words) - RUN_WORDS + 1
    if runs < 1:
        return 0.0
    distinct = set(zip(*(words[place:] for place in range(RUN_WORDS)), strict=False))
    return 1.0 - len(distinct) / runs
