"""Gold answers as numbers a head can learn, and a head's numbers as answers again.

One class a kind of task. `encode` makes inputs and targets of examples, `decode` makes a prediction
for each example of what the head gave for its inputs. Rows of the head lie as `heads` says.

U rows of the head's answers, C classes
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_prep.text.words import TextWords
from pipeline.encoders import Encoder
from pipeline.tasks.batches import TaskData
from pipeline.tasks.examples import Example, Gold
from pipeline.tasks.metrics import score
from pipeline.tasks.windows import cut_windows

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Prediction:
    """What the head says about one example."""

    answer: Gold
    confidence: float | None  # probability; of the least certain word when tagging; None: a number


class Answers(ABC):
    """The code between answers and numbers, fixed by the training examples."""

    kind: str
    labels: list[str]
    outputs: int  # numbers in a row of the head's answers

    @abstractmethod
    def encode(self, encoder: Encoder, examples: Sequence[Example], max_length: int) -> TaskData:
        """Turn texts and gold answers into numbers."""

    @abstractmethod
    def decode(self, outputs_UC: Floats, data: TaskData) -> list[Prediction]:
        """A prediction for each of the data's examples."""

    def tuned(self, outputs_UC: Floats, data: TaskData) -> "Answers":
        """The same with what only development examples can tell, such as a threshold."""
        return self

    def score(
        self, examples: Sequence[Example], predictions: Sequence[Prediction]
    ) -> dict[str, float]:
        """All scores of the kind."""
        gold = [example.gold for example in examples]
        return score(self.kind, gold, [guess.answer for guess in predictions], self.labels)


class ClassAnswers(Answers):
    """One label an example."""

    kind = "classify"

    def __init__(self, labels: Sequence[str], train: Sequence[Example]) -> None:
        self.labels = list(labels)
        self.outputs = len(labels)

    def encode(self, encoder: Encoder, examples: Sequence[Example], max_length: int) -> TaskData:
        """Sentences or pairs, and the numbers of their labels."""
        inputs = encoder.encode_texts([example.texts for example in examples], max_length)
        number = {label: number for number, label in enumerate(self.labels)}
        golds = [0 if example.gold is None else number[str(example.gold)] for example in examples]
        gold = np.array(golds, np.int64)
        return TaskData(examples, inputs, np.ones_like(gold), gold)

    def decode(self, outputs_UC: Floats, data: TaskData) -> list[Prediction]:
        """The likeliest label and its probability."""
        best_U, sure_U = likeliest(outputs_UC)
        return [
            Prediction(self.labels[best], float(sure))
            for best, sure in zip(best_U, sure_U, strict=True)
        ]


class NumberAnswers(Answers):
    """One number an example, learnt as a deviation from the mean, in deviations: near zero."""

    kind = "regress"
    outputs = 1

    def __init__(self, labels: Sequence[str], train: Sequence[Example]) -> None:
        self.labels = []
        values = np.array([example.gold for example in train], np.float64)
        self._mean, self._deviation = float(values.mean()), float(values.std()) or 1.0

    def encode(self, encoder: Encoder, examples: Sequence[Example], max_length: int) -> TaskData:
        """Sentences or pairs, and their numbers."""
        inputs = encoder.encode_texts([example.texts for example in examples], max_length)
        golds = [self._mean if example.gold is None else example.gold for example in examples]
        values = np.array(golds, np.float64)
        gold = ((values - self._mean) / self._deviation).astype(np.float32)
        return TaskData(examples, inputs, np.ones(len(gold), np.int64), gold)

    def decode(self, outputs_UC: Floats, data: TaskData) -> list[Prediction]:
        """Numbers on the scale of the gold ones."""
        values = outputs_UC[:, 0].astype(np.float64) * self._deviation + self._mean
        return [Prediction(float(value), None) for value in values]


class TagAnswers(Answers):
    """A tag for each word."""

    kind = "tag"

    def __init__(self, labels: Sequence[str], train: Sequence[Example]) -> None:
        self.labels = list(labels)
        self.outputs = len(labels)

    def encode(self, encoder: Encoder, examples: Sequence[Example], max_length: int) -> TaskData:
        """Sentences as words, long ones as several inputs, and the numbers of their tags."""
        sentences = [TextWords.joined(example.texts) for example in examples]
        taken = encoder.word_units(sentences).split([len(words) for words in sentences])
        room = max_length - encoder.frame(1)
        windows = [
            (words[first:last],)
            for words, own in zip(sentences, taken, strict=True)
            for first, last in cut_windows(own, room)
        ]
        inputs = encoder.encode_words(windows, max_length)
        number = {label: number for number, label in enumerate(self.labels)}
        gold = [number[tag] for example in examples for tag in _tags(example)]
        return TaskData(examples, inputs, inputs.word_counts, np.array(gold, np.int64))

    def decode(self, outputs_UC: Floats, data: TaskData) -> list[Prediction]:
        """The likeliest tags; the inputs of a sentence follow each other and make it whole."""
        best_U, sure_U = likeliest(outputs_UC)
        predictions = []
        end = 0
        for example in data.examples:
            start, end = end, end + len(example.texts)
            tags = tuple(self.labels[i] for i in best_U[start:end])
            predictions.append(Prediction(tags, float(sure_U[start:end].min())))
        return predictions


def _tags(example: Example) -> tuple[str, ...]:
    """Gold tags; O where there are none."""
    if example.gold is None:
        return ("O",) * len(example.texts)
    assert isinstance(example.gold, tuple)
    return example.gold


def likeliest(outputs_UC: Floats) -> tuple[NDArray[np.int64], Floats]:
    """The class with the largest logit, and its probability."""
    # The softmax of the largest: exp(0) over the sum of all exponentials.
    sure_U = 1 / np.exp(outputs_UC - outputs_UC.max(1, keepdims=True)).sum(1)
    return outputs_UC.argmax(1), sure_U
