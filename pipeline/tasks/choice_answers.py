"""Answers of multiple choice: the head scores every choice on its own, and the best one wins.

U choices of all examples
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.encoders import Encoder
from pipeline.tasks.answers import Answers, Floats, Prediction
from pipeline.tasks.batches import TaskData
from pipeline.tasks.choices import choice_name, choice_number
from pipeline.tasks.examples import Example


@dataclass(frozen=True)
class ChoicePrediction(Prediction):
    """The best choice of an example."""

    number: int  # of the best choice, from 0
    shares: tuple[float, ...]  # the probability of each choice; their sum is 1


class ChoiceAnswers(Answers):
    """One of the example's own choices; examples may differ in their number of choices."""

    kind = "choice"
    outputs = 1

    def __init__(self, labels: Sequence[str]) -> None:
        """labels: names of the choices (task.labels); without them a choice has its number."""
        self.labels = list(labels)

    def fitted(self) -> dict[str, Any]:
        """Return the names of the choices."""
        return {"labels": self.labels}

    def encode(self, encoder: Encoder, examples: Sequence[Example], max_length: int) -> TaskData:
        """Encode one pair per choice: the context and the choice.

        gold_U2: the first column is 1 at the first choice of each example, the second at its right
        choice.
        """
        pairs = [(each.texts[0], choice) for each in examples for choice in each.texts[1:]]
        sizes = np.array([len(each.texts) - 1 for each in examples], np.int64)
        starts = np.cumsum(sizes) - sizes
        gold_U2 = np.zeros((len(pairs), 2), np.float32)
        gold_U2[starts, 0] = 1
        gold_U2[starts + [self._right(each) for each in examples], 1] = 1
        inputs = encoder.encode_texts(pairs, max_length)
        ones = np.ones(len(pairs), np.int64)
        return TaskData(examples, inputs, ones, gold_U2, bundle_sizes=sizes)

    def _right(self, example: Example) -> int:
        """Return the number of the right choice; 0 without a label."""
        number = 0 if example.gold is None else choice_number(str(example.gold), self.labels)
        assert number is not None, "readers check the labels"
        return number

    def decode(self, outputs_UC: Floats, data: TaskData) -> list[Prediction]:
        """Return the most probable choice of each example: softmax over its own choices."""
        assert data.bundle_sizes is not None
        predictions: list[Prediction] = []
        for logits in np.split(outputs_UC[:, 0], np.cumsum(data.bundle_sizes)[:-1]):
            shares = np.exp(logits.astype(np.float64) - logits.max())
            shares /= shares.sum()
            best = int(shares.argmax())
            name = choice_name(best, self.labels)
            chosen = ChoicePrediction(name, float(shares[best]), best, tuple(shares.tolist()))
            predictions.append(chosen)
        return predictions
