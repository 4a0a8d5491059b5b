"""Counting models: probabilities that are some, and as a plain count gives them."""

from collections import Counter

import numpy as np
import pytest

from pipeline.bench.ngrams import Trigram, perplexity

VOCAB = 9


@pytest.fixture(scope="module")
def text() -> np.ndarray:
    random = np.random.default_rng(0)
    return (VOCAB * random.random(400) ** 2).astype(np.int64)


def plainly(text: list[int], a: int, b: int, c: int) -> float:
    """Kneser and Ney, one probability at a time."""
    three = Counter(zip(text, text[1:], text[2:], strict=False))
    two = Counter(trigram[1:] for trigram in three)
    one = Counter(bigram[1:] for bigram in two)
    probability = 1 / VOCAB
    for counts, context in ((one, ()), (two, (b,)), (three, (a, b))):
        after = {gram: count for gram, count in counts.items() if gram[:-1] == context}
        once, twice = ((np.array([*counts.values()]) == n).sum() for n in (1, 2))
        discount = max(once, 1) / max(once + 2 * twice, 2)
        if after:
            left = discount * len(after) / sum(after.values())
            share = max(after.get((*context, c), 0) - discount, 0) / sum(after.values())
            probability = share + left * probability
    return probability


def test_probabilities_are_those_of_a_plain_count(text: np.ndarray) -> None:
    model = Trigram(text, VOCAB)
    for a, b, c in [(0, 0, 0), (0, 1, 5), (8, 8, 8), (3, 2, 1), (7, 8, 0)]:
        found = model.probabilities(*(np.array([word]) for word in (a, b, c)))
        assert found[0] == pytest.approx(plainly(text.tolist(), a, b, c))


def test_probabilities_add_up_to_one_after_any_words(text: np.ndarray) -> None:
    model = Trigram(text[text < 7], VOCAB)  # two words never occur
    words = np.arange(VOCAB)
    for a, b in [(0, 0), (3, 5), (8, 0), (0, 8), (8, 8)]:
        given = model.probabilities(np.full(VOCAB, a), np.full(VOCAB, b), words)
        assert given.sum() == pytest.approx(1)
        assert given.min() > 0


def test_what_was_seen_is_less_surprising_than_chance(text: np.ndarray) -> None:
    given = Trigram(text, VOCAB).probabilities(text[:-2], text[1:-1], text[2:])
    assert perplexity(given) < VOCAB
    assert perplexity(np.full(5, 0.25)) == pytest.approx(4)
