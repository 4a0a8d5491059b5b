"""The two figures of reuse: what they measure, and what they refuse."""

import numpy as np
import pytest

from data_prep.examples.chunks import Chunk
from data_prep.examples.reuse import Reuse


def pairs(documents: np.ndarray, label: np.ndarray, length: int = 10) -> Chunk:
    """Pairs of two segments with `length` tokens each; a coin decided every label."""
    count = len(label)
    return Chunk(
        tokens=np.zeros(count * (2 * length + 3), np.uint16),
        row_examples=np.arange(count + 1, dtype=np.int32),
        example_tokens=np.arange(count + 1, dtype=np.int32) * (2 * length + 3),
        second=np.full(count, length + 2, np.uint16),
        label=label.astype(np.int8),
        coin=np.ones(count, np.int8),
        documents=documents.astype(np.uint32),
    )


def draw(partners: np.ndarray, count: int = 40_000, documents: int = 1000) -> Reuse:
    rng = np.random.default_rng(0)
    first, label = rng.integers(0, documents, count), rng.integers(0, 2, count)
    second = np.where(label == 1, rng.choice(partners, count), first)
    reuse = Reuse(documents)
    for part in np.array_split(np.arange(count), 3):
        reuse.add(pairs(np.stack([first, second], 1)[part], label[part]))
    return reuse


def test_fair_partners_pass() -> None:
    reuse = draw(np.arange(1000))
    assert 0.01 < reuse.favoured < 0.016 and 0.5 <= reuse.telling < 0.52
    assert reuse.problem() is None


def test_a_pool_of_a_few_documents_is_refused() -> None:
    """The fault of an earlier version: 1.6 % of the text gave all random segments."""
    reuse = draw(np.arange(0, 1000, 62))
    assert reuse.favoured > 0.1
    assert "1 % of the corpus supplies" in str(reuse.problem())


def test_a_region_that_tells_the_label_is_refused() -> None:
    reuse = draw(np.arange(500))  # twice as often as their share: not favoured, but telling
    assert reuse.favoured < 0.02 and reuse.telling > 0.6
    assert "region of the second segment tells the label" in str(reuse.problem())


def test_figures_of_few_documents_are_told_and_refuse_nothing() -> None:
    reuse = draw(np.arange(1, 9), count=200, documents=9)
    assert reuse.figures()["favoured"] > 0 and reuse.problem() is None


def test_every_nth_document_of_a_large_corpus_gives_the_same_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = draw(np.arange(0, 1000, 4))
    monkeypatch.setattr("data_prep.examples.reuse.MOST_DOCUMENTS", 400)
    sampled = draw(np.arange(0, 1000, 4))
    assert len(sampled.own) < 400
    assert abs(sampled.favoured - whole.favoured) < 0.3 * whole.favoured
