"""The card of a fine-tuned model: its scores, and a caution where they are too high."""

from typing import Any

import pytest

from pipeline.tasks.model_card import model_card

STATED = {
    "form": "BertForSequenceClassification",
    "task": {"kind": "classify"},
    "answers": {"labels": ["a", "b"]},
    "finetune": {"mode": "full"},
}


def facts(split: str, chosen: bool, dev: list[float]) -> dict[str, Any]:
    return {
        "task": "sst2", "kind": "classify", "metric": "accuracy", "encoder": "mine", "seed": 2,
        "seeds": [1, 2], "dev_scores": dev, "test_scores": [0.55, 0.57], "split": split,
        "examples": {"train": 1_000, "dev": 20, "test": 30}, "chosen_on_scored": chosen,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("split", "chosen", "heading", "mean"),
    [
        ("test", False, "| seed | development | test |", "Test"),
        ("dev", True, "| seed | development, to choose | development, scored |", "Development"),
        ("dev", False, "| seed | development, to choose | development, scored |", "Development"),
        (
            "part of train", False,
            "| seed | development | part of the training file, held out |",
            "Part of the training file, held out",
        ),
    ],
)  # fmt: skip
def test_the_card_says_what_was_scored_and_if_the_epoch_was_chosen_on_it(
    split: str, chosen: bool, heading: str, mean: str
) -> None:
    card = model_card(STATED, facts(split, chosen, [0.5, 0.6]), {"lr": 5e-5, "epochs": 3})
    assert heading in card
    assert "| 2 | 60.0 | 57.0 |" in card
    assert f"\n{mean}: mean 56.0, deviation 1.4 over 2 seeds." in card
    assert '`{"epochs": 3, "lr": 5e-05, "mode": "full"}`' in card
    assert ("scores are too high" in card) == chosen


def test_the_card_shows_a_development_score_once() -> None:
    """It stood in a second column "test", too."""
    card = model_card(STATED, facts("dev", True, [0.55, 0.57]), {})
    scores = card[card.index("## Scores") : card.index("## Making")]
    assert "| seed | development |\n| --- | --- |\n| 1 | 55.0 |\n| 2 | 57.0 |\n" in scores
    assert "| test" not in scores and "Test" not in scores
