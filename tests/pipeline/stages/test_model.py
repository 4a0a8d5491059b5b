"""Which of several seeds is kept; tests/pipeline/inference/test_predict.py uses kept models."""

from pipeline.stages.model import best_by_development


def test_the_seed_that_is_kept_is_chosen_by_development_score() -> None:
    """The test score chooses nothing; of equal seeds the smallest is kept."""
    rows = {"a": (3, 0.7, 0.9), "b": (2, 0.8, 0.1), "c": (1, 0.8, 0.2)}
    scores = {
        role: {"seed": seed, "dev_score": dev, "score": test}
        for role, (seed, dev, test) in rows.items()
    }
    assert best_by_development(scores) == "c"
    assert best_by_development({role: scores[role] for role in ("a", "b")}) == "b"
