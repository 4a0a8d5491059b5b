"""Measure a clean text by the quality rules of Gopher and FineWeb (`corpus.filters`).

The thresholds stand in `data_prep.quality_rules`. Words are divided by white space; in scripts
without spaces each character is a word, and rules about the length of words do not apply. Stop
words are counted in documents that were identified as English only.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from data_prep.config import CorpusConfig
from data_prep.text.filters import first_words
from data_prep.text.word_runs import Hashes, hash_words, runs_of

STOP_WORDS = frozenset({"the", "be", "to", "of", "and", "that", "have", "with"})
BULLETS = ("•", "‣", "▶", "◀", "◦", "■", "□", "▪", "▫", "–", "-", "*", "●", "·")
ELLIPSES = ("...", "…")
# Marks that end a sentence or a quotation, in the scripts we know.
TERMINAL = tuple(".!?…\"'”’»」』)]:;。！？｡؟۔।॥။។៕።՞։")
SHORT_LINE = 30  # characters
COUNTED_WORDS = 200_000  # words that are read, twice the largest allowed number


class Measures:
    """The properties of one text that rules look at; each is computed when it is first needed."""

    def __init__(self, text: str, language: str | None, known: dict[str, int]):
        self.text = text
        self.language = language
        self._known = known  # hashes of words, kept between texts
        self.unrepeated = COUNTED_WORDS  # runs of so many words and more are known not to repeat

    @cached_property
    def words(self) -> list[str]:
        """The words of the text, at most COUNTED_WORDS."""
        return first_words(self.text, COUNTED_WORDS)

    @cached_property
    def are_characters(self) -> bool:
        """True if the script has no spaces, so that single characters are taken as words."""
        return len(self.words) > 1 and max(map(len, self.words)) == 1

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the text that are not blank."""
        return [line for line in self.text.split("\n") if line]

    @cached_property
    def paragraphs(self) -> list[str]:
        """The paragraphs of the text."""
        return self.text.split("\n\n")

    @cached_property
    def hashed(self) -> Hashes:
        """A hash per word [W]."""
        return hash_words(self.words, self._known)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """The characters per word [W]."""
        return np.fromiter(map(len, self.words), np.int64, len(self.words))

    def share_of_lines(self, chosen: Callable[[str], bool]) -> float:
        """Return the share of lines for which `chosen` is true."""
        return sum(map(chosen, self.lines)) / max(len(self.lines), 1)


def _word_length(text: Measures) -> float | None:
    return None if text.are_characters else float(text.lengths.sum() / max(len(text.words), 1))


def _per_word(marks: tuple[str, ...], text: Measures) -> float:
    return sum(map(text.text.count, marks)) / max(len(text.words), 1)


def _letter_words(text: Measures) -> float:
    with_letter = sum(any(map(str.isalpha, word)) for word in text.words)
    return with_letter / max(len(text.words), 1)


def _stop_words(text: Measures) -> float | None:
    if text.language != "en":
        return None
    return len(STOP_WORDS.intersection(map(str.lower, text.words)))


def _repeated(parts: list[str]) -> float:
    return 1 - len(set(parts)) / max(len(parts), 1)


def _repeated_characters(parts: list[str]) -> float:
    again = sum(len(part) * (count - 1) for part, count in Counter(parts).items())
    return again / max(sum(map(len, parts)), 1)


def top_run_share(length: int, text: Measures) -> float:
    """Return the share of characters in the most frequent run of `length` words, if it repeats.

    Of equally frequent runs the longest counts.
    """
    for _, hashes in runs_of(text.hashed, [length]):
        _, first, counts = np.unique(hashes, return_index=True, return_counts=True)
        if counts.max() < 2:
            return 0.0
        most = first[counts == counts.max()]
        sizes = np.convolve(text.lengths, np.ones(length, np.int64), "valid")[most]
        return min(float(counts.max() * sizes.max() / text.lengths.sum()), 1.0)
    return 0.0


def repeated_run_share(length: int, text: Measures) -> float:
    """Return the share of characters in runs of `length` words that occurred earlier.

    A word in several such runs counts once. A longer run repeats only if the shorter ones in it do.
    """
    if length >= text.unrepeated:
        return 0.0
    for _, hashes in runs_of(text.hashed, [length]):
        _, first = np.unique(hashes, return_index=True)
        again = np.ones(len(hashes), np.int64)
        again[first] = 0
        if not again.any():
            text.unrepeated = length
            return 0.0
        changes = np.zeros(len(text.words) + 1, np.int64)
        changes[: len(again)] += again
        changes[length : length + len(again)] -= again
        is_covered = np.cumsum(changes)[:-1] > 0
        return float(text.lengths[is_covered].sum() / text.lengths.sum())
    return 0.0


# A measure is None for texts to which its rule does not apply.
MEASURES: Mapping[str, Callable[[Measures], float | None]] = {
    "gopher_min_words": lambda text: len(text.words),
    "gopher_max_words": lambda text: len(text.words),
    "gopher_min_word_length": _word_length,
    "gopher_max_word_length": _word_length,
    "gopher_max_hashes": partial(_per_word, ("#",)),
    "gopher_max_ellipses": partial(_per_word, ELLIPSES),
    "gopher_max_bullet_lines": lambda text: text.share_of_lines(lambda x: x.startswith(BULLETS)),
    "gopher_max_ellipsis_lines": lambda text: text.share_of_lines(lambda x: x.endswith(ELLIPSES)),
    "gopher_min_letter_words": _letter_words,
    "gopher_min_stop_words": _stop_words,
    "gopher_max_repeated_lines": lambda text: _repeated(text.lines),
    "gopher_max_repeated_paragraphs": lambda text: _repeated(text.paragraphs),
    "gopher_max_repeated_line_characters": lambda text: _repeated_characters(text.lines),
    "gopher_max_repeated_paragraph_characters": lambda text: _repeated_characters(text.paragraphs),
    **{f"gopher_max_top_{n}_grams": partial(top_run_share, n) for n in (2, 3, 4)},
    **{f"gopher_max_repeated_{n}_grams": partial(repeated_run_share, n) for n in range(5, 11)},
    "fineweb_min_punctuated_lines": lambda text: text.share_of_lines(
        lambda line: line.endswith(TERMINAL)
    ),
    "fineweb_max_repeated_line_characters": lambda text: _repeated_characters(text.lines),
    "fineweb_max_short_lines": lambda text: text.share_of_lines(
        lambda line: len(line) < SHORT_LINE
    ),
}


class QualityFilter:
    """Drops texts that a rule of the chosen presets rejects."""

    def __init__(self, config: CorpusConfig):
        self._rules = config.quality_thresholds()
        self._known: dict[str, int] = {}

    def reason_to_drop(self, text: str, language: str | None) -> str | None:
        """Return the name of the first rule that rejects a clean text, or None."""
        measures = Measures(text, language, self._known)
        for rule, threshold in self._rules.items():
            value = MEASURES[rule](measures)
            if value is None:
                continue
            if value < threshold if "_min_" in rule else value > threshold:
                return rule
        return None
