"""Scores of predictions: accuracy, F1 of every kind, Matthews, Pearson and Spearman.

Written in NumPy, because torchmetrics takes seconds to import and has no entity F1. Every score is
tested against scikit-learn, SciPy or seqeval. An undefined score (no positives, no variance) is 0,
as in scikit-learn.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Entity = tuple[str, int, int]  # type, first word, one past the last word


def score(
    kind: str, gold: Sequence[Any], predicted: Sequence[Any], labels: Sequence[str]
) -> dict[str, float]:
    """Return all scores for a kind of task, by name."""
    if kind == "regress":
        x, y = np.asarray(gold, np.float64), np.asarray(predicted, np.float64)
        return {"pearson": pearson(x, y), "spearman": spearman(x, y)}
    if kind == "multilabel":
        return multilabel_scores(gold, predicted, labels)
    if kind == "choice":
        return {"accuracy": float(np.mean([a == b for a, b in zip(gold, predicted, strict=True)]))}
    if kind == "tag":
        scores = tagging_scores(gold, predicted)
        has_entities = any(label.startswith("B-") for label in labels) or not labels
        return scores if has_entities else {"accuracy": scores["accuracy"]}
    table = confusion(gold, predicted, labels)
    return {
        "accuracy": float(np.trace(table) / max(table.sum(), 1)),
        "f1": f1(table),
        "matthews": matthews(table),
    }


def confusion(
    gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]
) -> NDArray[np.int64]:
    """Return the confusion matrix [labels, labels]: rows are gold, columns are predicted."""
    number = {label: index for index, label in enumerate(labels)}
    table = np.zeros((len(labels), len(labels)), np.int64)
    for truth, guess in zip(gold, predicted, strict=True):
        table[number[truth], number[guess]] += 1
    return table


def f1(table: NDArray[np.int64]) -> float:
    """Return the F1 of the second of two labels (GLUE's positive class), else the macro F1."""
    by_label = [
        _ratio(2 * table[i, i], table[i].sum() + table[:, i].sum()) for i in range(len(table))
    ]
    return by_label[1] if len(table) == 2 else float(np.mean(by_label))


def multilabel_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], labels: Sequence[str]
) -> dict[str, float]:
    """Return the F1 over all decisions, the mean F1 over labels, and the share of equal sets."""
    pairs = [(set(truth), set(guess)) for truth, guess in zip(gold, predicted, strict=True)]
    right = Counter(label for truth, guess in pairs for label in truth & guess)
    total = Counter(label for pair in pairs for part in pair for label in part)
    by_label = [_ratio(2 * right[label], total[label]) for label in labels]
    return {
        "micro_f1": _ratio(2 * right.total(), total.total()),
        "macro_f1": float(np.mean(by_label)),
        "subset_accuracy": float(np.mean([truth == guess for truth, guess in pairs])),
    }


def matthews(table: NDArray[np.int64]) -> float:
    """Return Matthews' correlation, for any number of labels (Gorodkin's R_K)."""
    gold, predicted = table.sum(1).astype(np.float64), table.sum(0).astype(np.float64)
    total = float(table.sum())
    covariance = float(np.trace(table)) * total - float(gold @ predicted)
    spread = (total**2 - float(gold @ gold)) * (total**2 - float(predicted @ predicted))
    return _ratio(covariance, float(np.sqrt(spread)))


def pearson(x: Floats, y: Floats) -> float:
    """Pearson's correlation."""
    x, y = x - x.mean(), y - y.mean()
    return _ratio(float(x @ y), float(np.sqrt((x @ x) * (y @ y))))


def spearman(x: Floats, y: Floats) -> float:
    """Spearman's correlation: Pearson's of the ranks; ties get their mean rank."""
    return pearson(_ranks(x), _ranks(y))


def _ranks(values: Floats) -> Floats:
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean_rank: Floats = last - (counts - 1) / 2
    return mean_rank[which]


def tagging_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Return micro-averaged entity precision, recall and F1, as conlleval, and word accuracy."""
    counts = count_entities(gold, predicted).values()
    right, found, there = (sum(column) for column in zip((0, 0, 0), *counts, strict=True))
    words = sum(map(len, gold))
    same = sum(
        a == b
        for truth, guess in zip(gold, predicted, strict=True)
        for a, b in zip(truth, guess, strict=True)
    )
    return {**_entity_scores(right, found, there), "accuracy": _ratio(same, words)}


def scores_by_type(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> dict[str, dict[str, float]]:
    """Return conlleval's table: per entity type its scores and its gold and predicted counts."""
    return {
        kind: {**_entity_scores(right, found, there), "gold": there, "predicted": found}
        for kind, (right, found, there) in sorted(count_entities(gold, predicted).items())
    }


def count_entities(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> dict[str, tuple[int, int, int]]:
    """Return (correct, predicted, gold) counts per entity type."""
    right: Counter[str] = Counter()
    found: Counter[str] = Counter()
    there: Counter[str] = Counter()
    for truth, guess in zip(gold, predicted, strict=True):
        real, claimed = entities(truth), entities(guess)
        right.update(kind for kind, _, _ in real & claimed)
        found.update(kind for kind, _, _ in claimed)
        there.update(kind for kind, _, _ in real)
    return {kind: (right[kind], found[kind], there[kind]) for kind in found | there}


def _entity_scores(right: int, found: int, there: int) -> dict[str, float]:
    return {
        "entity_f1": _ratio(2 * right, found + there),
        "entity_precision": _ratio(right, found),
        "entity_recall": _ratio(right, there),
    }


def entities(tags: Sequence[str]) -> set[Entity]:
    """Return the entities of BIO tags; I- after O or after another type begins an entity."""
    found: set[Entity] = set()
    start, current = 0, ""
    for position, tag in enumerate([*tags, "O"]):
        prefix, _, kind = tag.partition("-")
        if current and (prefix != "I" or kind != current):
            found.add((current, start, position))
            current = ""
        if kind and not current:
            start, current = position, kind
    return found


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0
