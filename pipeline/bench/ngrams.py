"""`sesame bench ngrams`: perplexities of n-gram models, as a baseline for ELMo.

A unigram and an interpolated trigram model (Kneser and Ney 1995, one discount per order) are
counted on the training text of an ELMo experiment and evaluated on its held-out text. Sentences,
vocabulary and predicted words (`</S>` and `<UNK>` included) are the same as for the network's
forward direction, whose metric is `heldout_forward_perplexity`.
Try it: sesame bench ngrams experiment=elmo_small corpus.paths=wiki.train.tokens

N words of a text, V vocabulary
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.bench.figures import Figure
from pipeline.config.schema import Config
from pipeline.stages import STAGES
from pipeline.store.outputs import Store
from pipeline.workflow.execute import execute_all
from pipeline.workflow.graph import Graph

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Counts:
    """Counts of words after contexts, both given as numbers."""

    def __init__(self, contexts: Ints, words: Ints, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self.pairs, self.counts = np.unique(contexts * vocab_size + words, return_counts=True)
        owners = self.pairs // vocab_size
        self._contexts, first = np.unique(owners, return_index=True)
        self._totals = np.add.reduceat(self.counts, first)
        self._kinds = np.diff(np.append(first, len(owners)))  # distinct words after each context
        once, twice = ((self.counts == times).sum() for times in (1, 2))
        # Ney et al. 1994. Never zero, or words without a count would have probability 0.
        self.discount = max(once, 1) / max(once + 2 * twice, 2)

    def probabilities(self, contexts: Ints, words: Ints, lower: Floats) -> Floats:
        """Return discounted relative frequencies, plus the freed mass distributed by `lower`."""
        counts = _look_up(contexts * self._vocab_size + words, self.pairs, self.counts)
        totals = _look_up(contexts, self._contexts, self._totals)
        kinds = _look_up(contexts, self._contexts, self._kinds)
        seen = np.maximum(totals, 1)
        shares = np.maximum(counts - self.discount, 0) / seen
        return np.where(totals > 0, shares + self.discount * kinds / seen * lower, lower)


class Trigram:
    """A Kneser-Ney trigram: lower orders count the distinct contexts of a word."""

    def __init__(self, text_N: Ints, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        a, b, c = text_N[:-2], text_N[1:-1], text_N[2:]
        self._three = Counts(a * vocab_size + b, c, vocab_size)
        ends = self._three.pairs % vocab_size**2
        self._two = Counts(ends // vocab_size, ends % vocab_size, vocab_size)
        words = self._two.pairs % vocab_size
        self._one = Counts(np.zeros_like(words), words, vocab_size)

    def probabilities(self, a: Ints, b: Ints, c: Ints) -> Floats:
        """Return the probabilities of words c after words a and b."""
        any_word = np.full(c.shape, 1 / self._vocab_size)
        one = self._one.probabilities(np.zeros_like(c), c, any_word)
        two = self._two.probabilities(b, c, one)
        return self._three.probabilities(a * self._vocab_size + b, c, two)


def _look_up(keys: Ints, sorted_keys: Ints, values: Ints) -> Ints:
    """Return the values of keys; zero for missing keys."""
    places = np.minimum(np.searchsorted(sorted_keys, keys), len(sorted_keys) - 1)
    return np.where(sorted_keys[places] == keys, values[places], 0)


def measure(config: Config) -> list[Figure]:
    """Return the perplexities of the held-out text."""
    from data_prep.tokenizers.vocabulary import VOCABULARY, read_vocabulary

    graph = Graph(Store(Path(config.paths.store)), STAGES)
    examples = graph.add("examples", config)
    execute_all(list(graph.nodes.values()))
    vocab_size = len(read_vocabulary(examples.inputs["tokenizer"].path / VOCABULARY))
    train_N = _words(examples.output.path, "train", vocab_size)
    heldout_N = _words(examples.output.path, "heldout", vocab_size)
    counts_V = np.bincount(train_N, minlength=vocab_size)
    unigram = (counts_V + 1)[heldout_N[2:]] / (len(train_N) + vocab_size)
    trigram = Trigram(train_N, vocab_size)
    after = trigram.probabilities(heldout_N[:-2], heldout_N[1:-1], heldout_N[2:])
    return [
        Figure(f"{name}, {len(heldout_N):,} held-out words", perplexity(given), "perplexity")
        for name, given in (("unigram", unigram), ("interpolated trigram", after))
    ]


def perplexity(probabilities: Floats) -> float:
    """Return the perplexity of words with these probabilities."""
    return float(np.exp(-np.log(probabilities).mean()))


def _words(folder: Path, split: str, vocab_size: int) -> Ints:
    """Return the words to predict, sentence after sentence; unknown words as `<UNK>`."""
    from data_prep.examples.chunks import ChunkStore
    from data_prep.tokenizers.words import SPECIAL_WORDS, UNKNOWN
    from pipeline.data.streams import FORWARD_TARGETS, Text

    text = Text(ChunkStore(folder, split))
    targets_N = text.between(0, text.length)[FORWARD_TARGETS].astype(np.int64)
    return np.where(targets_N < vocab_size, targets_N, SPECIAL_WORDS.index(UNKNOWN))
