"""Read the predictions of a fine-tuning and judge each: right or wrong, and how confident.

An example with several answers, such as the tags of a sentence, has one judgement per answer for
calibration: its words and labels have probabilities of their own. As a sample error the example is
judged as a whole.
predictions.jsonl holds text of the task. A page may show it only with share.text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.report.collect import FinishedOutput
from pipeline.tasks.squad_scores import answer_scores

# What counts as a right decision, by kind of task. Numbers are neither right nor wrong.
RIGHT = {
    "classify": "the gold label",
    "tag": "the gold tag of a word",
    "span": "an exact match",
    "choice": "the gold choice",
    "multilabel": "that one label of a text is predicted where it is gold, and not where it is not",
}
DECISIONS = {"tag": "words", "multilabel": "labels of texts"}  # what is decided; else examples


@dataclass(frozen=True)
class Decision:
    """One decision: the probability that the model gave it, and whether it is right."""

    confidence: float
    is_right: bool


@dataclass(frozen=True)
class Judged(Decision):
    """The prediction for one test example, right as a whole; `confidence` sorts the errors.

    When tagging or with several labels, the confidence is that of the least certain decision, which
    is not the probability that all are right.
    """

    inputs: list[Any]  # texts; the words of a sentence when tagging
    gold: Any
    prediction: Any
    scores: Any = None  # probability by word or label, where there are several


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
            line["confidence"],
            is_right(line["gold"], line["prediction"]),
            line["inputs"],
            line["gold"],
            line["prediction"],
            line.get("scores"),
        )
        for line in made.lines("predictions.jsonl")
    ]


def decisions(kind: str, predictions: Sequence[Judged]) -> list[Decision] | None:
    """Return what calibration judges: each word's tag, each label of a text, else each example.

    None for outputs of formats before 9, which have no probabilities of words and labels.
    """
    if kind not in DECISIONS:
        return list(predictions)
    if any(each.scores is None for each in predictions):
        return None
    split = {"tag": _words, "multilabel": _labels}[kind]
    return [one for each in predictions for one in split(each)]


def _words(each: Judged) -> Iterator[Decision]:
    for gold, guess, score in zip(each.gold, each.prediction, each.scores, strict=True):
        yield Decision(score, gold == guess)


def _labels(each: Judged) -> Iterator[Decision]:
    for label, score in each.scores.items():
        is_there = label in each.prediction
        yield Decision(score if is_there else 1 - score, is_there == (label in each.gold))
