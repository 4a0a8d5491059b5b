"""Choose the `Answers` class of each kind of task."""

from collections.abc import Callable, Sequence

from pipeline.tasks.answers import Answers, ClassAnswers, NumberAnswers, TagAnswers
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import Example
from pipeline.tasks.span_answers import SpanAnswers

FROM_TRAINING: dict[str, Callable[[Sequence[str], Sequence[Example]], Answers]] = {
    "classify": ClassAnswers,
    "regress": NumberAnswers,
    "tag": TagAnswers,
}


def make_answers(task: TaskConfig, labels: Sequence[str], train: Sequence[Example]) -> Answers:
    """Return the task's `Answers`, fitted to the training examples."""
    if task.kind == "span":
        return SpanAnswers(task)
    return FROM_TRAINING[task.kind](labels, train)
