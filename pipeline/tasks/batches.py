"""Examples as flat batches: an encoder's inputs with a head's targets, bucketed by length.

U answers (words when tagging, else inputs)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.encoders import EncodedInputs, Encoder, InputBatch, runs
from pipeline.tasks.answers import Answers
from pipeline.tasks.examples import Example

Ints = NDArray[np.int64]
WINDOW = 8  # batches whose examples are sorted by length together
EVALUATION_PIECES = 8192  # a batch without gradients has about so many


@dataclass(frozen=True)
class TaskData:
    """One split of a task, encoded once; any choice of rows makes a batch."""

    examples: Sequence[Example]
    inputs: EncodedInputs
    counts: Ints  # answers of each example
    gold: NDArray[Any]  # answers as numbers, example after example

    def batch(self, rows: Ints) -> tuple[InputBatch, Tensor]:
        """The inputs of the chosen examples and their gold_U."""
        return self.inputs.batch(rows), torch.from_numpy(self.gold[self.places(rows)])

    def places(self, rows: Ints) -> Ints:
        """Where the answers of the chosen examples stand in `gold`."""
        counts = self.counts[rows]
        return runs(np.cumsum(self.counts)[rows] - counts, counts)[0]


def encode_examples(
    encoder: Encoder, examples: Sequence[Example], answers: Answers, max_length: int
) -> TaskData:
    """Turn texts and gold answers into numbers."""
    encode = encoder.encode_words if answers.kind == "tag" else encoder.encode_texts
    inputs = encode([example.texts for example in examples], max_length)
    counts = answers.counts(inputs.word_counts)
    return TaskData(examples, inputs, counts, answers.to_numbers(examples, counts))


def training_order(lengths: Ints, batch_size: int, rng: np.random.Generator) -> list[Ints]:
    """All rows in batches of similar length: shuffled, sorted inside windows, batches shuffled."""
    order = rng.permutation(len(lengths))
    batches = []
    for start in range(0, len(order), WINDOW * batch_size):
        window = order[start : start + WINDOW * batch_size]
        window = window[np.argsort(lengths[window], kind="stable")]
        batches += [window[i : i + batch_size] for i in range(0, len(window), batch_size)]
    return [batches[i] for i in rng.permutation(len(batches))]


def evaluation_order(lengths: Ints) -> list[Ints]:
    """All rows by length, in batches of about as many pieces."""
    order = np.argsort(lengths, kind="stable")
    number = (np.cumsum(lengths[order]) - 1) // EVALUATION_PIECES
    return np.split(order, np.flatnonzero(np.diff(number)) + 1)
