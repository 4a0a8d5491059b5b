"""Answers of multi-label tasks: any number of labels per example, none included.

E examples, C labels
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.encoders import Encoder
from pipeline.tasks.answers import Answers, Floats, Prediction
from pipeline.tasks.batches import TaskData
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import Example

HALF = 0.5
THRESHOLDS = np.arange(1, 20) / 20  # tried by task.tune_threshold


@dataclass(frozen=True)
class LabelsPrediction(Prediction):
    """The labels of a text."""

    scores: dict[str, float]  # the probability of each label


class MultilabelAnswers(Answers):
    """All labels whose probability is above a threshold; each label is decided on its own."""

    kind = "multilabel"

    def __init__(self, task: TaskConfig, labels: Sequence[str], threshold: float = HALF) -> None:
        self.labels = list(labels)
        self.outputs = len(labels)
        self.threshold = threshold
        self._task = task
        self.is_tunable = task.tune_threshold

    def fitted(self) -> dict[str, Any]:
        """Return the labels, in the order of the logits, and the threshold."""
        return {"labels": self.labels, "threshold": self.threshold}

    def encode(self, encoder: Encoder, examples: Sequence[Example], max_length: int) -> TaskData:
        """Encode sentences or pairs; gold_EC is 1 at the labels of an example."""
        inputs = encoder.encode_texts([example.texts for example in examples], max_length)
        number = {label: number for number, label in enumerate(self.labels)}
        gold_EC = np.zeros((len(examples), len(self.labels)), np.float32)
        for row, example in enumerate(examples):
            assert example.gold is None or isinstance(example.gold, tuple)
            gold_EC[row, [number[label] for label in example.gold or ()]] = 1
        return TaskData(examples, inputs, np.ones(len(examples), np.int64), gold_EC)

    def decode(self, outputs_UC: Floats, data: TaskData) -> list[Prediction]:
        """Return the labels above the threshold, with the least certain label's probability."""
        chances_EC = 1 / (1 + np.exp(-outputs_UC.astype(np.float64)))
        is_there_EC = chances_EC > self.threshold
        sure_E = np.where(is_there_EC, chances_EC, 1 - chances_EC).min(1)
        predictions: list[Prediction] = []
        for is_there, sure, chances in zip(is_there_EC, sure_E, chances_EC, strict=True):
            labels = tuple(self.labels[c] for c in np.flatnonzero(is_there))
            scores = dict(zip(self.labels, chances.tolist(), strict=True))
            predictions.append(LabelsPrediction(labels, float(sure), scores))
        return predictions

    def tuned(self, outputs_UC: Floats, data: TaskData) -> "MultilabelAnswers":
        """Return a copy with the threshold of the best score on `data` (task.tune_threshold)."""
        if not self.is_tunable:
            return self
        tried = [MultilabelAnswers(self._task, self.labels, float(t)) for t in THRESHOLDS]
        return max(
            tried, key=lambda own: (own._score(outputs_UC, data), -abs(own.threshold - HALF))
        )

    def _score(self, outputs_UC: Floats, data: TaskData) -> float:
        return self.score(data.examples, self.decode(outputs_UC, data))[self._task.metric]
