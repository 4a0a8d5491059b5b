"""Weights of classes in the loss, for tasks whose labels are rare (task.class_weights)."""

from collections import Counter
from collections.abc import Sequence

from data_prep.errors import UsageError
from pipeline.tasks.config import BALANCED, TaskConfig
from pipeline.tasks.examples import Example


def class_weights(
    task: TaskConfig, labels: Sequence[str], train: Sequence[Example]
) -> list[float] | None:
    """Return the weight of each label; None if task.class_weights is not set.

    `balanced` gives a label n / (k · count), with n answers of k labels in the training examples,
    as scikit-learn does. A mapping may name a tag (B-PER) or the type of several tags (PER); labels
    that it does not name weigh 1. Raises a UsageError for a name that is no label.
    """
    given = task.class_weights
    if given is None:
        return None
    if given == BALANCED:
        counts = Counter(label for example in train for label in _answers(example))
        seen = [label for label in labels if counts[label]]
        return [counts.total() / (len(seen) * max(counts[label], 1)) for label in labels]
    weights = {str(label): float(weight) for label, weight in given.items()}
    types = {label: label.partition("-")[2] for label in labels}
    unknown = weights.keys() - {*types.keys(), *types.values()}
    if unknown:
        raise UsageError(
            f"task.class_weights: {len(unknown)} of its {len(weights)} names are no labels of the "
            "task; correct them"
        )
    return [weights.get(label, weights.get(types[label], 1.0)) for label in labels]


def _answers(example: Example) -> tuple[str, ...]:
    return example.gold if isinstance(example.gold, tuple) else (str(example.gold),)
