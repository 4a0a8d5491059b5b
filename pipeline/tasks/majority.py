"""The majority baseline: the same answer for every text, from the training answers alone.

It predicts the most frequent label, the mean number, the most frequent tag for every word, or the
labels that more than half of the examples have.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from pipeline.tasks.answers import Prediction, TagPrediction
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import Example
from pipeline.tasks.finetuning import Outcome, scored
from pipeline.tasks.kinds import make_answers
from pipeline.tasks.multilabel_answers import LabelsPrediction
from pipeline.tasks.splits import Splits


def answer_majority(splits: Splits, task: TaskConfig) -> Outcome:
    """Predict the majority answer for every example and score it."""
    golds: list[Any] = [example.gold for example in splits.train]

    def predict(examples: Sequence[Example]) -> list[Prediction]:
        if task.kind == "regress":
            return [Prediction(fmean(golds), None)] * len(examples)
        if task.kind in ("classify", "choice"):
            return [Prediction(*_commonest(golds))] * len(examples)
        if task.kind == "multilabel":
            return [_frequent(golds)] * len(examples)
        tag, share = _commonest(tag for tags in golds for tag in tags)
        sizes = [len(example.texts) for example in examples]
        return [TagPrediction((tag,) * size, share, (share,) * size) for size in sizes]

    answers = make_answers(task, splits.labels, splits.train)
    dev = answers.score(splits.dev, predict(splits.dev))[task.metric]
    return Outcome(
        **scored(predict, answers, splits), dev_scores=[dev], best_epoch=1, steps=0, cut=0
    )


def _frequent(golds: Sequence[tuple[str, ...]]) -> Prediction:
    """Return the labels of more than half of the examples."""
    counts = Counter(label for labels in golds for label in labels)
    shares = {label: count / len(golds) for label, count in sorted(counts.items())}
    sure = min(max(share, 1 - share) for share in shares.values())
    labels = tuple(label for label, share in shares.items() if share > 0.5)
    return LabelsPrediction(labels, sure, shares)


def _commonest(values: Iterable[str]) -> tuple[str, float]:
    """Return the most frequent value and its share."""
    counts = Counter(values)
    [(value, count)] = counts.most_common(1)
    return value, count / counts.total()
