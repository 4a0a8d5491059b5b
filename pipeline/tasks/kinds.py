"""Choose the `Answers` class of each kind of task."""

from collections.abc import Sequence
from typing import Any

from pipeline.tasks.answers import Answers, ClassAnswers, NumberAnswers, TagAnswers
from pipeline.tasks.choice_answers import ChoiceAnswers
from pipeline.tasks.class_weights import class_weights
from pipeline.tasks.config import WEIGHTED, TaskConfig
from pipeline.tasks.examples import Example
from pipeline.tasks.multilabel_answers import MultilabelAnswers
from pipeline.tasks.span_answers import SpanAnswers


def make_answers(task: TaskConfig, labels: Sequence[str], train: Sequence[Example]) -> Answers:
    """Return the task's `Answers`, fitted to the training examples."""
    if task.kind == "regress":
        return NumberAnswers.of(train)
    if task.kind == "span":
        return SpanAnswers(task)
    fitted: dict[str, Any] = {"labels": task.labels if task.kind == "choice" else labels}
    if task.kind in WEIGHTED:
        fitted["weights"] = class_weights(task, labels, train)
    return restore(task, fitted)


def restore(task: TaskConfig, fitted: dict[str, Any]) -> Answers:
    """Return the `Answers` whose `fitted` these are."""
    match task.kind:
        case "classify":
            return ClassAnswers(**fitted)
        case "regress":
            return NumberAnswers(**fitted)
        case "tag":
            return TagAnswers(**fitted)
        case "choice":
            return ChoiceAnswers(**fitted)
        case "multilabel":
            return MultilabelAnswers(task, **fitted)
        case _:
            return SpanAnswers(task, **fitted)
