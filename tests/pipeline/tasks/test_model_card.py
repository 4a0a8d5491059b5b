"""The card of a fine-tuned model: its scores, and a caution where they are too high."""

import pytest

from pipeline.tasks.model_card import model_card

STATED = {
    "form": "BertForSequenceClassification",
    "task": {"kind": "classify"},
    "answers": {"labels": ["a", "b"]},
    "finetune": {"mode": "full"},
}


@pytest.mark.parametrize("split", ["test", "dev", "part of train"])
def test_the_card_says_where_the_epoch_was_chosen_on_the_scored_set(split: str) -> None:
    facts = {
        "task": "sst2", "kind": "classify", "metric": "accuracy", "encoder": "mine", "seed": 2,
        "seeds": [1, 2], "dev_scores": [0.5, 0.6], "test_scores": [0.55, 0.57], "split": split,
        "examples": {"train": 1_000, "dev": 20, "test": 30},
    }  # fmt: skip
    card = model_card(STATED, facts, {"lr": 5e-5, "epochs": 3})
    assert "| 2 | 60.0 | 57.0 |" in card and "mean 56.0, deviation 1.4 over 2 seeds." in card
    assert '`{"epochs": 3, "lr": 5e-05, "mode": "full"}`' in card
    assert ("scores are too high" in card) == (split == "dev")
