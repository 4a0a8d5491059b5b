"""Gold answers as numbers a head can learn, and a head's numbers as answers again.

U answers (words when tagging, else inputs), C classes
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.tasks.examples import Example, Gold


@dataclass(frozen=True)
class Prediction:
    """What the head says about one example."""

    answer: Gold
    confidence: float | None  # probability; of the least certain word when tagging; None: a number


class Answers:
    """The code between answers and numbers, fixed by the training examples."""

    def __init__(self, kind: str, labels: Sequence[str], train: Sequence[Example]) -> None:
        self.kind = kind
        self.labels = list(labels)
        self._number = {label: number for number, label in enumerate(labels)}
        # Numbers are learnt as deviations from their mean, in deviations: targets near zero.
        values = np.array([e.gold for e in train], np.float64) if kind == "regress" else np.zeros(1)
        self._mean, self._deviation = float(values.mean()), float(values.std()) or 1.0

    @property
    def outputs(self) -> int:
        """Numbers the head gives for an answer."""
        return 1 if self.kind == "regress" else len(self.labels)

    def counts(self, word_counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Answers of each example: one, or one a word that fitted in."""
        return word_counts if self.kind == "tag" else np.ones_like(word_counts)

    def to_numbers(self, examples: Sequence[Example], counts: NDArray[np.int64]) -> NDArray[Any]:
        """Gold answers of all examples, one after another."""
        if self.kind == "regress":
            values = np.array([example.gold for example in examples], np.float64)
            return ((values - self._mean) / self._deviation).astype(np.float32)
        golds = [e.gold if isinstance(e.gold, tuple) else (e.gold,) for e in examples]
        return np.array(
            [
                self._number[str(label)]
                for gold, count in zip(golds, counts, strict=True)
                for label in gold[:count]
            ],
            np.int64,
        )

    def from_numbers(
        self,
        outputs_UC: NDArray[np.float32],
        examples: Sequence[Example],
        counts: NDArray[np.int64],
    ) -> Iterator[Prediction]:
        """A prediction for each example; words that did not fit into the encoder count as O."""
        if self.kind == "regress":
            for value in outputs_UC[:, 0]:
                yield Prediction(float(value) * self._deviation + self._mean, None)
            return
        best_U = outputs_UC.argmax(1)
        # The softmax of the largest: exp(0) over the sum of all exponentials.
        sure_U = 1 / np.exp(outputs_UC - outputs_UC.max(1, keepdims=True)).sum(1)
        end = 0
        for example, count in zip(examples, counts, strict=True):
            start, end = end, end + int(count)
            names = tuple(self.labels[i] for i in best_U[start:end])
            sure = float(sure_U[start:end].min())
            if self.kind == "tag":
                names += ("O",) * (len(example.texts) - len(names))
                yield Prediction(names, sure)
            else:
                yield Prediction(names[0], sure)
