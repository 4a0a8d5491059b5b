"""What counting alone achieves: unigram and interpolated trigram perplexity on ELMo's examples.

The baselines that an ELMo's exact held-out perplexity is to be set beside: the same words to
predict, the same vocabulary, sentences in their frames. The trigram model is Jelinek and Mercer's
(1980): P = Σ λ_n P_n over trigrams, bigrams, unigrams and a uniform floor, with the λ fitted by EM
on the last twentieth of the training text, in five classes of how often the context was seen.

Reads an examples folder and its words tokenizer; writes to the terminal.
Try it: python -m pipeline.bench.trigram store/examples/<fingerprint> store/tokenizer/<fingerprint>
"""

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_prep.chunks import ChunkStore
from data_prep.tokenizers import Tokenizer
from data_prep.tokenizers.vocabulary import VOCABULARY, read_vocabulary

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

KEPT_FOR_FITTING = 20  # one part in twenty
ROUNDS = 30
SEEN = (1, 5, 50, 500)  # how often a context was seen parts classes of contexts


@dataclass(frozen=True)
class Predictions:
    """Words to predict, N of them, and the two words before each; `<S>` where there are none."""

    words_N: Ints
    before_N: Ints
    before_that_N: Ints

    def between(self, start: int, stop: int) -> "Predictions":
        return Predictions(
            self.words_N[start:stop], self.before_N[start:stop], self.before_that_N[start:stop]
        )


def read_predictions(folder: Path, split: str, predicted: int, unknown: int) -> Predictions:
    """All words of a split as the forward model is asked for them."""
    store = ChunkStore(folder, split)
    parts: list[list[Ints]] = []
    for number in range(store.chunks):
        chunk = store.read(number)
        tokens = np.where(chunk.tokens < predicted, chunk.tokens, unknown).astype(np.int64)
        is_first = np.zeros(len(tokens), np.bool_)
        is_first[chunk.example_tokens[:-1]] = True
        place = np.flatnonzero(~is_first)
        before = np.where(is_first[place - 1], tokens[place - 1], tokens[place - 2])
        parts.append([tokens[place], tokens[place - 1], before])
    return Predictions(*(np.concatenate(column) for column in zip(*parts, strict=True)))


class Counts:
    """How often keys were seen."""

    def __init__(self, keys: Ints) -> None:
        self._keys, self._counts = np.unique(keys, return_counts=True)

    def of(self, keys: Ints) -> Ints:
        """The counts of these keys; 0 for one that was never seen."""
        place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[place] == keys, self._counts[place], 0)


class Trigrams:
    """Counts of a text, and what they say about another."""

    def __init__(self, text: Predictions, vocab_size: int) -> None:
        self._size, self._total = vocab_size, len(text.words_N)
        self._one = np.bincount(text.words_N, minlength=vocab_size)
        self._context = Counts(text.before_N), Counts(self._pair(text))
        self._two = Counts(text.before_N * vocab_size + text.words_N)
        self._three = Counts(self._pair(text) * vocab_size + text.words_N)

    def _pair(self, text: Predictions) -> Ints:
        return text.before_that_N * self._size + text.before_N

    def parts(self, text: Predictions) -> tuple[Floats, Ints]:
        """Each word's probability by trigram, bigram, unigram and chance; its context's class."""
        seen_one, seen_two = (
            self._context[0].of(text.before_N),
            self._context[1].of(self._pair(text)),
        )
        two = self._two.of(text.before_N * self._size + text.words_N)
        three = self._three.of(self._pair(text) * self._size + text.words_N)
        parts_4N = np.stack(
            [
                three / np.maximum(seen_two, 1),
                two / np.maximum(seen_one, 1),
                self._one[text.words_N] / self._total,
                np.full(len(text.words_N), 1 / self._size),
            ]
        )
        return parts_4N, np.digitize(seen_two, SEEN)

    def unigram(self, text: Predictions) -> float:
        """The perplexity of word frequencies alone, one added to each."""
        share = (self._one[text.words_N] + 1) / (self._total + self._size)
        return math.exp(-float(np.log(share).mean()))


def fit(parts_4N: Floats, class_N: Ints) -> Floats:
    """The weights [classes, 4] that make a text most likely, by EM."""
    weights = np.full((len(SEEN) + 1, 4), 0.25)
    for _ in range(ROUNDS):
        shares_4N = weights[class_N].T * parts_4N
        shares_4N /= shares_4N.sum(0)
        for number in range(len(weights)):
            if (class_N == number).any():
                weights[number] = shares_4N[:, class_N == number].mean(1)
    return weights


def perplexities(folder: Path, tokenizer_folder: Path) -> dict[str, Any]:
    """Held-out perplexity of both baselines over the words that ELMo predicts forward."""
    predicted = len(read_vocabulary(tokenizer_folder / VOCABULARY))
    unknown = Tokenizer.load(tokenizer_folder).unk
    text = read_predictions(folder, "train", predicted, unknown)
    held_out = read_predictions(folder, "heldout", predicted, unknown)
    end = len(text.words_N) - len(text.words_N) // KEPT_FOR_FITTING
    fitted = fit(
        *Trigrams(text.between(0, end), predicted).parts(text.between(end, len(text.words_N)))
    )
    whole = Trigrams(text, predicted)
    parts_4N, class_N = whole.parts(held_out)
    likely_N = (fitted[class_N].T * parts_4N).sum(0)
    return {
        "words": len(held_out.words_N),
        "vocabulary": predicted,
        "unigram": whole.unigram(held_out),
        "trigram": math.exp(-float(np.log(likely_N).mean())),
    }


if __name__ == "__main__":
    for name, value in perplexities(Path(sys.argv[1]), Path(sys.argv[2])).items():
        print(f"{name:12}{value:,.1f}" if isinstance(value, float) else f"{name:12}{value:,}")
