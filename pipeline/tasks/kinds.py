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

# What `Answers.fitted` holds, by kind of task.
FITTED = {
    "classify": ("labels",),
    "multilabel": ("labels", "threshold"),
    "regress": ("mean", "deviation", "least", "most"),
    "tag": ("labels",),
    "span": ("threshold",),
    "choice": ("labels",),
}


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


def find_fault(kind: str, fitted: dict[str, Any]) -> str:
    """Return what is wrong with the `fitted` of a file, as a message; "" if nothing is."""
    for key in FITTED[kind]:
        value = fitted.get(key)
        if value is None:
            return f"{key} is missing"
        if key == "labels":
            is_list = isinstance(value, list) and all(isinstance(each, str) for each in value)
            if not is_list or len(set(value)) < len(value):
                return f"{key} must be a list of different texts"
        elif not isinstance(value, int | float) or isinstance(value, bool):
            return f"{key} must be a number"
    more = sorted(fitted.keys() - set(FITTED[kind]))
    return f"{more[0]:.40} is no key of kind {kind}" if more else ""


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
