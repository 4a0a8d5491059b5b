"""The TF-IDF floor learns what words alone tell, for sentences and pairs, and nothing is hidden."""

import numpy as np
import pytest

from data_prep.errors import UsageError
from pipeline.config.schema import Config
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import Example
from pipeline.tasks.splits import Splits
from pipeline.tasks.tfidf import STRENGTHS, fit_tfidf

WORDS = ["good", "fine", "bad", "dull", "film", "plot", "cast"]


def sentence(rng: np.random.Generator) -> str:
    return " ".join(rng.choice(WORDS, size=rng.integers(2, 8)))


def test_labels_follow_from_words() -> None:
    rng = np.random.default_rng(0)

    def example() -> Example:
        text = sentence(rng)
        kind = sum(word in WORDS[:2] for word in text.split())
        return Example((text,), "yes" if kind else "no", text, 0)

    parts = [[example() for _ in range(size)] for size in (200, 50, 80)]
    outcome = fit_tfidf(Splits(*parts, ["no", "yes"]), TaskConfig(name="toy"))
    assert outcome.scores["accuracy"] > 0.9
    assert len(outcome.dev_scores) == len(STRENGTHS)
    sure = np.array([guess.confidence for guess in outcome.predictions])
    right = np.array(
        [g.answer == e.gold for g, e in zip(outcome.predictions, parts[2], strict=True)]
    )
    assert sure.mean() == pytest.approx(right.mean(), abs=0.1)  # as probabilities should be
    assert np.corrcoef(sure, right)[0, 1] > 0.3


def test_pairs_are_compared_word_by_word() -> None:
    rng = np.random.default_rng(0)

    def example() -> Example:
        a, b = sentence(rng), sentence(rng)
        shared = len(set(a.split()) & set(b.split()))
        return Example((a, b), float(shared), a, 0)

    parts = [[example() for _ in range(size)] for size in (400, 50, 80)]
    task = TaskConfig(name="toy", kind="regress", metric="pearson", text_b="other")
    assert fit_tfidf(Splits(*parts, []), task).scores["pearson"] > 0.8


@pytest.mark.parametrize(
    ("encoder", "kind"), [("tfidf", "tag"), (["tfidf", "glove.txt"], "classify"), ([], "classify")]
)
def test_what_tfidf_cannot_do_is_refused(encoder: object, kind: str) -> None:
    with pytest.raises(UsageError, match="encoder="):
        Config(encoder=encoder, task=TaskConfig(kind=kind)).check()


def test_numbers_stay_within_the_range_of_training() -> None:
    """As those of every other encoder do. An outlier far outside lowers a Pearson correlation."""
    rng = np.random.default_rng(0)

    def example(good: int, bad: int) -> Example:
        text = " ".join(rng.permutation(["good"] * good + ["bad"] * bad))
        return Example((text,), min(max(float(good - bad), -2.0), 2.0), text, 0)

    train, dev = ([example(*rng.integers(0, 4, 2)) for _ in range(n)] for n in (200, 50))
    outliers = [Example((f"{'good ' * 50}",), 2.0, "", 0), Example(("bad " * 50,), -2.0, "", 0)]
    task = TaskConfig(name="toy", kind="regress", metric="pearson")
    outcome = fit_tfidf(Splits(train, dev, [*dev, *outliers], [], unlabelled={"x": outliers}), task)
    for predictions in (outcome.predictions, outcome.unlabelled["x"]):
        values = [float(str(guess.answer)) for guess in predictions]
        assert min(values) >= -2.0 and max(values) <= 2.0
    assert 2.0 in values and -2.0 in values  # there is something to clip
