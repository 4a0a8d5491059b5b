"""Examples as flat batches: an encoder's inputs with a head's targets, bucketed by length.

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
    """One split of a task, encoded once; any choice of inputs makes a batch.

    An example is one input, or several where it is cut into windows: its Answers know.
    """

    examples: Sequence[Example]
    inputs: EncodedInputs
    counts: Ints  # rows of the head's answers for each input
    gold: NDArray[Any]  # answers as numbers, input after input

    def batch(self, rows: Ints) -> tuple[InputBatch, Tensor]:
        """The chosen inputs and their gold_U."""
        return self.inputs.batch(rows), torch.from_numpy(self.gold[self.places(rows)])

    def places(self, rows: Ints) -> Ints:
        """Where the answers for the chosen inputs stand in `gold`."""
        return runs(self._starts[rows], self.counts[rows])[0]

    @cached_property
    def _starts(self) -> Ints:
        return np.cumsum(self.counts) - self.counts


def training_order(lengths: Ints, batch_size: int, rng: np.random.Generator) -> list[Ints]:
    """All rows in batches of similar length: shuffled, sorted inside windows, batches shuffled.

    Recurrent encoders and heads take as many steps as a batch's longest input has units. Longer
    ones come first, as attention wants them: then it need not sort a batch again.
    """
    order = rng.permutation(len(lengths))
    batches = []
    for start in range(0, len(order), WINDOW * batch_size):
        window = order[start : start + WINDOW * batch_size]
        window = window[np.argsort(-lengths[window], kind="stable")]
        batches += [window[i : i + batch_size] for i in range(0, len(window), batch_size)]
    return [batches[i] for i in rng.permutation(len(batches))]
