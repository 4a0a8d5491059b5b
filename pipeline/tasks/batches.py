"""Flat, unpadded batches of a task: encoder inputs with targets, bucketed by length.

U rows of the head's answers (see heads): inputs, words or units
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.encoders import EncodedInputs, InputBatch, runs
from pipeline.tasks.examples import Example

Ints = NDArray[np.int64]
WINDOW = 8  # batches whose examples are sorted by length together


@dataclass(frozen=True)
class TaskData:
    """One split of a task, encoded once; any selection of inputs can form a batch.

    An example is one input, or several inputs if it was cut into windows (see `Answers.encode`).
    """

    examples: Sequence[Example]
    inputs: EncodedInputs
    counts: Ints  # [inputs]: rows of the head's answers per input
    gold: NDArray[Any]  # [U] or [U, 2]: targets of all inputs, in their order

    def batch(self, rows: Ints) -> tuple[InputBatch, Tensor]:
        """Return the inputs `rows` and their targets gold_U."""
        return self.inputs.batch(rows), torch.from_numpy(self.gold[self.places(rows)])

    def places(self, rows: Ints) -> Ints:
        """Return the indices into `gold` of the inputs `rows`."""
        return runs(self._starts[rows], self.counts[rows])[0]

    @cached_property
    def _starts(self) -> Ints:
        return np.cumsum(self.counts) - self.counts


def training_order(lengths: Ints, batch_size: int, rng: np.random.Generator) -> list[Ints]:
    """Return all rows in batches of similar length, in random order.

    Rows are shuffled, sorted by length within windows of WINDOW batches, and the batches are
    shuffled. Similar lengths matter because recurrent layers take as many steps as the longest
    input has units. In a batch longer inputs come first, as attention needs them.
    """
    order = rng.permutation(len(lengths))
    batches = []
    for start in range(0, len(order), WINDOW * batch_size):
        window = order[start : start + WINDOW * batch_size]
        window = window[np.argsort(-lengths[window], kind="stable")]
        batches += [window[i : i + batch_size] for i in range(0, len(window), batch_size)]
    return [batches[i] for i in rng.permutation(len(batches))]
