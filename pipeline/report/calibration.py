"""Calibration: whether predictions with a confidence of 90 % are right in 90 % of cases."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.pages import charts
from pipeline.pages.blocks import Block, Column, Figure, Figures, Note, Table
from pipeline.pages.wording import count, percent
from pipeline.report.predictions import DECISIONS, RIGHT, Decision, Judged, decisions

GROUPS = 10  # of about equally many predictions, by confidence
SMALLEST = 30  # predictions per group; in smaller ones chance alone makes large gaps
LEFT_OUT = (
    "calibration is left out. Fine-tunings of formats before 9 have no probability per word or "
    "label. Run `sesame finetune` with the same settings to add it."
)


@dataclass(frozen=True)
class Group:
    """Predictions of similar confidence."""

    size: int
    confidence: float  # mean
    accuracy: float  # share of right predictions


def calibration_groups(predictions: Sequence[Decision]) -> list[Group]:
    """Divide predictions into equal groups by confidence; equal confidences stay together.

    There are GROUPS groups, or fewer if a group would have less than SMALLEST predictions.
    """
    parts = max(1, min(GROUPS, len(predictions) // SMALLEST))
    confidences = np.array([each.confidence for each in predictions])
    right = np.array([each.is_right for each in predictions])
    edges = np.unique(np.quantile(confidences, np.linspace(0, 1, parts + 1)[1:-1]))
    place = np.searchsorted(edges, confidences, side="left")
    chosen = (place == number for number in np.unique(place))
    return [
        Group(int(own.sum()), float(confidences[own].mean()), float(right[own].mean()))
        for own in chosen
    ]


def calibration_error(groups: Sequence[Group]) -> float:
    """Return the expected calibration error: the mean gap between confidence and accuracy."""
    total = sum(group.size for group in groups)
    return sum(group.size * abs(group.confidence - group.accuracy) for group in groups) / total


def calibration_blocks(
    number: int, task: str, kind: str, predictions: Sequence[Judged]
) -> list[Block]:
    """Return the reliability table and its figure; empty without predictions to judge."""
    if not predictions:
        return []
    judged = decisions(kind, predictions)
    if judged is None:
        return [Note(f"{task}: {LEFT_OUT}")]
    groups = calibration_groups(judged)
    error = f"expected calibration error {percent(calibration_error(groups))}"
    unit = DECISIONS.get(kind, "predictions")
    columns = [Column(name, True) for name in (unit, "mean confidence", "right")]
    rows = [
        [count(group.size), percent(group.confidence), percent(group.accuracy)] for group in groups
    ]
    name, title = f"calibration-{number}", f"{task}: calibration"
    curve = [(100 * group.confidence, 100 * group.accuracy) for group in groups]
    low = min(min(x, y) for x, y in curve)
    svg = charts.lines(
        name,
        title,
        [
            charts.Series(unit, curve, colour=0),
            charts.Series("perfectly calibrated", [(low, low), (100, 100)], True, colour=4),
        ],
        x_title="mean confidence",
        whole=False,
    )
    caption = f"Percentage of right {unit} by mean confidence. Right means {RIGHT[kind]}."
    return [Table(f"{title}, {error}", columns, rows), Figures([Figure(name, title, caption, svg)])]
