"""Convert gold answers to training targets, and a head's outputs back to answers.

There is one class per kind of task. `encode` turns examples into inputs and targets; `decode` turns
the head's outputs for these inputs into one prediction per example. `heads` defines the order of
the head's rows.

U rows of the head's answers, C classes
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.encoders import Encoder
from pipeline.tasks.batches import TaskData
from pipeline.tasks.examples import Example, Gold
from pipeline.tasks.metrics import score
from pipeline.tasks.sentences import encode_sentences

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Prediction:
    """The predicted answer for one example."""

    answer: Gold
    # Probability of the answer; of the least certain word or label, where there are several; None
    # for regression.
    confidence: float | None


@dataclass(frozen=True)
class TagPrediction(Prediction):
    """The tags of a sentence."""

    scores: tuple[float, ...]  # the probability of each word's tag


class Answers(ABC):
    """Encodes and decodes the answers of one kind of task; fitted to the training examples."""

    kind: str
    labels: list[str]
    outputs: int  # columns of the head's answers (C)
    weights: Sequence[float] | None = None  # of the labels in the loss; None: all alike
    is_tunable = False  # True if `tuned` may return other answers than these

    @abstractmethod
    def fitted(self) -> dict[str, Any]:
        """Return the fitted state other than weights, as JSON: arguments of `kinds.restore`."""

    @abstractmethod
    def encode(self, encoder: Encoder, examples: Sequence[Example], max_length: int) -> TaskData:
        """Return inputs of at most `max_length` units, with targets."""

    @abstractmethod
    def decode(self, outputs_UC: Floats, data: TaskData) -> list[Prediction]:
        """Return one prediction per example of `data`."""

    def tuned(self, outputs_UC: Floats, data: TaskData) -> "Answers":
        """Return a copy tuned on development data, for example with a decision threshold."""
        return self

    def score(
        self, examples: Sequence[Example], predictions: Sequence[Prediction]
    ) -> dict[str, float]:
        """Return all scores of this kind of task, by metric."""
        gold = [example.gold for example in examples]
        return score(self.kind, gold, [guess.answer for guess in predictions], self.labels)


class ClassAnswers(Answers):
    """One label per example."""

    kind = "classify"

    def __init__(self, labels: Sequence[str], weights: Sequence[float] | None = None) -> None:
        self.labels = list(labels)
        self.outputs = len(labels)
        self.weights = weights

    def fitted(self) -> dict[str, Any]:
        """Return the labels, in the order of the logits."""
        return {"labels": self.labels}

    def encode(self, encoder: Encoder, examples: Sequence[Example], max_length: int) -> TaskData:
        """Encode sentences or pairs; the targets are label numbers, 0 without a label."""
        inputs = encoder.encode_texts([example.texts for example in examples], max_length)
        number = {label: number for number, label in enumerate(self.labels)}
        golds = [0 if example.gold is None else number[str(example.gold)] for example in examples]
        gold = np.array(golds, np.int64)
        return TaskData(examples, inputs, np.ones_like(gold), gold)

    def decode(self, outputs_UC: Floats, data: TaskData) -> list[Prediction]:
        """Return the most probable label and its probability."""
        best_U, sure_U = likeliest(outputs_UC)
        return [
            Prediction(self.labels[best], float(sure))
            for best, sure in zip(best_U, sure_U, strict=True)
        ]


class NumberAnswers(Answers):
    """One number per example; targets have mean 0 and deviation 1 over the training examples."""

    kind = "regress"
    outputs = 1

    def __init__(self, mean: float, deviation: float, least: float, most: float) -> None:
        self.labels = []
        self._mean, self._deviation = mean, deviation
        self._least, self._most = least, most

    @classmethod
    def of(cls, train: Sequence[Example]) -> "NumberAnswers":
        """Return the scale of the training examples: answers stay within their range."""
        values = np.array([example.gold for example in train], np.float64)
        range_ = float(values.min()), float(values.max())
        return cls(float(values.mean()), float(values.std()) or 1.0, *range_)

    def fitted(self) -> dict[str, Any]:
        """Return the scale and range of the numbers."""
        return {
            "mean": self._mean,
            "deviation": self._deviation,
            "least": self._least,
            "most": self._most,
        }

    def encode(self, encoder: Encoder, examples: Sequence[Example], max_length: int) -> TaskData:
        """Encode sentences or pairs; the targets are standardised numbers."""
        inputs = encoder.encode_texts([example.texts for example in examples], max_length)
        golds = [self._mean if example.gold is None else example.gold for example in examples]
        values = np.array(golds, np.float64)
        gold = ((values - self._mean) / self._deviation).astype(np.float32)
        return TaskData(examples, inputs, np.ones(len(gold), np.int64), gold)

    def decode(self, outputs_UC: Floats, data: TaskData) -> list[Prediction]:
        """Return numbers on the scale of the gold numbers, within the range of the training's."""
        values = outputs_UC[:, 0].astype(np.float64) * self._deviation + self._mean
        values = values.clip(self._least, self._most)
        return [Prediction(float(value), None) for value in values]


class TagAnswers(Answers):
    """One tag per word."""

    kind = "tag"

    def __init__(self, labels: Sequence[str], weights: Sequence[float] | None = None) -> None:
        self.labels = list(labels)
        self.outputs = len(labels)
        self.weights = weights

    def fitted(self) -> dict[str, Any]:
        """Return the tags, in the order of the logits."""
        return {"labels": self.labels}

    def encode(self, encoder: Encoder, examples: Sequence[Example], max_length: int) -> TaskData:
        """Encode sentences, see `sentences`; the targets are tag numbers."""
        inputs = encode_sentences(encoder, examples, max_length)
        number = {label: number for number, label in enumerate(self.labels)}
        gold = [number.get(tag, 0) for example in examples for tag in example.tags]
        ends = np.cumsum([len(example.texts) for example in examples])
        owners = np.searchsorted(ends, inputs.word_offsets[:-1], side="right")
        counts = inputs.word_counts
        return TaskData(examples, inputs, counts, np.array(gold, np.int64), owners=owners)

    def decode(self, outputs_UC: Floats, data: TaskData) -> list[Prediction]:
        """Return the most probable tag of every word, joining the inputs of a sentence."""
        best_U, sure_U = self.chosen(outputs_UC)
        predictions: list[Prediction] = []
        end = 0
        for example in data.examples:
            start, end = end, end + len(example.texts)
            tags = tuple(self.labels[i] for i in best_U[start:end])
            sure = tuple(float(each) for each in sure_U[start:end])
            predictions.append(TagPrediction(tags, min(sure), sure))
        return predictions

    def chosen(self, outputs_UC: Floats) -> tuple[NDArray[np.int64], Floats]:
        """Return the tag of each word and its probability.

        With one more column than there are tags, the last is the best path of a CRF and the others
        are log-probabilities.
        """
        if outputs_UC.shape[1] == self.outputs:
            return likeliest(outputs_UC)
        path_U = outputs_UC[:, -1].astype(np.int64)
        return path_U, np.exp(outputs_UC[np.arange(len(path_U)), path_U])


def likeliest(outputs_UC: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return the class with the largest logit, [U], and its probability, [U]."""
    # softmax at the maximum: exp(0) / sum(exp(logit - max))
    sure_U = 1 / np.exp(outputs_UC - outputs_UC.max(1, keepdims=True)).sum(1)
    return outputs_UC.argmax(1), sure_U
