"""Which of several seeds is kept; tests/pipeline/inference/test_predict.py uses kept models."""

from pathlib import Path

from pipeline.stages.model import Model, best_by_development
from pipeline.stages.tracked import TRAINING
from pipeline.store.checkpoints import CHECKPOINTS


def test_the_seed_that_is_kept_is_chosen_by_development_score() -> None:
    """The test score chooses nothing; of equal seeds the smallest is kept."""
    rows = {"a": (3, 0.7, 0.9), "b": (2, 0.8, 0.1), "c": (1, 0.8, 0.2)}
    scores = {
        role: {"seed": seed, "dev_score": dev, "score": test}
        for role, (seed, dev, test) in rows.items()
    }
    assert best_by_development(scores) == "c"
    assert best_by_development({role: scores[role] for role in ("a", "b")}) == "b"


def test_a_training_that_is_done_again_says_how_far_it_is(tmp_path: Path) -> None:
    """A job whose progress does not change is not requeued."""
    assert Model().how_far(tmp_path) == "started"
    (tmp_path / TRAINING / CHECKPOINTS / "00000900").mkdir(parents=True)
    assert Model().how_far(tmp_path) == "step 900"
