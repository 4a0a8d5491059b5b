"""Leave text out of the corpus that benchmarks are scored on (`corpus.decontaminate`).

A paragraph (or its document) is left out if it shares a run of `corpus.decontaminate_words` words
with a text of the benchmark files. Words are compared in lower case and without punctuation; in
scripts without spaces, each character is a word. A benchmark text that is shorter than the run is
found if it occurs whole, down to SHORTEST words, the least n-gram of Brown et al. (2020, appendix
C, who use 8 to 13 words); shorter ones are too common to say anything, and are counted. Unlike
there, runs that many documents share count too.
Runs are kept as 64-bit hashes. Two different runs fall together with probability 2^-64.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from data_prep.config import CorpusConfig
from data_prep.reading.benchmarks import BenchmarkFile
from data_prep.text.word_runs import WORD, Hashes, hash_words, runs_of

SHORTEST = 8  # words
TABLE_BITS = 20  # a table of 1 MB tells most runs of the corpus from all of the benchmarks'


class Benchmarks:
    """The runs of words of all benchmark texts; answers where a text has one of them."""

    def __init__(self, runs: dict[int, Hashes], texts: int, too_short: int):
        self._texts = texts
        self._too_short = too_short  # texts of fewer than SHORTEST words
        self._runs = runs  # sorted hashes by length in words
        self._tables = {length: _table(hashes) for length, hashes in runs.items()}
        self._words: dict[str, int] = {}

    @classmethod
    def of(cls, config: CorpusConfig) -> "Benchmarks | None":
        """Return the benchmarks that the config names; None if there are none.

        Each process reads their files once.
        """
        files = tuple(map(BenchmarkFile.parse, config.decontaminate))
        return _read(files, config.decontaminate_words) if files else None

    def remove(self, text: str, unit: str) -> str:
        """Return a clean text without what benchmarks have.

        unit: drop the `paragraphs` that a shared run touches, or the whole text (`documents`).
        """
        paragraphs = text.split("\n\n")
        # Hashes take an eighth of the memory of words.
        words = [hash_words(WORD.findall(each.lower()), self._words) for each in paragraphs]
        shared = self._shared(np.concatenate(words))
        if not shared.any():
            return text
        if unit == "documents":
            return ""
        owners = np.repeat(np.arange(len(words)), [len(each) for each in words])
        touched = set(owners[shared].tolist())
        kept = [each for number, each in enumerate(paragraphs) if number not in touched]
        return "\n\n".join(kept)

    def counts(self) -> dict[str, int]:
        """Return the numbers of texts, of texts too short to be found, and of runs."""
        runs = sum(map(len, self._runs.values()))
        return {"texts": self._texts, "too_short": self._too_short, "runs": runs}

    def _shared(self, words: Hashes) -> NDArray[np.bool_]:
        """Return a flag per word [W]: True if it belongs to a run that benchmarks have."""
        changes = np.zeros(len(words) + 1, np.int64)
        for length, hashes in runs_of(words, self._runs):
            likely = np.flatnonzero(self._tables[length][hashes >> np.uint64(64 - TABLE_BITS)])
            own = self._runs[length]
            place = np.minimum(np.searchsorted(own, hashes[likely]), len(own) - 1)
            found = likely[own[place] == hashes[likely]]
            changes[found] += 1
            changes[found + length] -= 1
        flags: NDArray[np.bool_] = np.cumsum(changes)[:-1] > 0
        return flags


@cache
def _read(files: tuple[BenchmarkFile, ...], most: int) -> Benchmarks:
    known: dict[str, int] = {}
    found: dict[int, list[Hashes]] = {}
    texts = too_short = 0
    for file in files:
        for text in file.texts():
            words = hash_words(WORD.findall(text.lower()), known)
            texts += len(words) > 0
            if len(words) < min(SHORTEST, most):
                too_short += len(words) > 0
                continue
            length = min(len(words), most)
            for _, hashes in runs_of(words, [length]):
                found.setdefault(length, []).append(hashes)
    runs = {length: np.unique(np.concatenate(hashes)) for length, hashes in found.items()}
    return Benchmarks(runs, texts, too_short)


def _table(hashes: Hashes) -> NDArray[np.bool_]:
    table = np.zeros(1 << TABLE_BITS, np.bool_)
    table[hashes >> np.uint64(64 - TABLE_BITS)] = True
    return table
