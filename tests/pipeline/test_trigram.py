"""Baselines by counting: they know text that repeats, and their probabilities add up to one."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.bench.trigram import Predictions, Trigrams, fit, perplexities, read_predictions
from tests.pipeline.toy_streams import PREDICTED, make_examples


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    _, tokenizer, examples = make_examples(tmp_path_factory.mktemp("trigram"))
    return examples, tokenizer


def test_counting_text_is_told_by_the_word_before(made: tuple[Path, Path]) -> None:
    found = perplexities(*made)
    assert found["unigram"] > 20
    assert found["trigram"] < found["unigram"] / 3


def test_probabilities_of_all_words_add_up_to_one(made: tuple[Path, Path]) -> None:
    text = read_predictions(made[0], "train", PREDICTED, 2)
    model = Trigrams(text, PREDICTED)
    weights = fit(*model.parts(read_predictions(made[0], "heldout", PREDICTED, 2)))
    every = np.arange(PREDICTED)
    for before_that, before in ((0, 0), (0, 5), (7, 8), (30, 5)):
        asked = Predictions(every, np.full_like(every, before), np.full_like(every, before_that))
        parts_4N, class_N = model.parts(asked)
        seen = parts_4N.sum(1) > 0  # an unseen context has no trigram part at all
        shares = weights[class_N[0]]
        assert (shares[:, None] * parts_4N).sum() == pytest.approx(shares[seen].sum())
