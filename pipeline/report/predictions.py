"""Read the predictions of a fine-tuning and judge each: right or wrong, and how confident.

predictions.jsonl holds text of the task. A page may show it only with share.text.
"""

from dataclasses import dataclass
from typing import Any

from pipeline.report.collect import FinishedOutput
from pipeline.tasks.squad_scores import answer_scores

# What counts as right, by kind of task. Numbers are neither right nor wrong.
RIGHT = {
    "classify": "the gold label",
    "tag": "all tags of a sentence; its confidence is that of the least certain word",
    "span": "an exact match",
    "choice": "the gold choice",
    "multilabel": "all labels of a text; its confidence is that of the least certain label",
}


@dataclass(frozen=True)
class Judged:
    """One prediction for a test example."""

    inputs: list[Any]  # texts; the words of a sentence when tagging
    gold: Any
    prediction: Any
    confidence: float
    is_right: bool


def judged_predictions(made: FinishedOutput) -> list[Judged]:
    """Return the predictions of a fine-tuning in order; empty for kinds without a right answer."""
    kind = made.counts["kind"]
    if kind not in RIGHT:
        return []
    unanswerable = bool(made.config["task"]["unanswerable"])

    def is_right(gold: Any, prediction: Any) -> bool:
        if kind == "span":
            return answer_scores(gold, prediction, unanswerable)[0] == 1.0
        if kind == "multilabel":
            return set(gold) == set(prediction)
        return bool(gold == prediction)

    return [
        Judged(
            line["inputs"],
            line["gold"],
            line["prediction"],
            line["confidence"],
            is_right(line["gold"], line["prediction"]),
        )
        for line in made.lines("predictions.jsonl")
    ]
