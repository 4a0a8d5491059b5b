"""Flat, unpadded batches of a task: encoder inputs with targets, bucketed by length.

U rows of the head's answers (see heads): inputs, words or units
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
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
    """One split of a task, encoded once; any selection of bundles can form a batch.

    A bundle is the inputs that a loss needs together: all choices of one example if the task is
    multiple choice, else one input. An example that was cut into windows has one bundle per window
    (see `Answers.encode`). Training draws, shuffles and divides bundles, never inputs.
    """

    examples: Sequence[Example]
    inputs: EncodedInputs
    counts: Ints  # [inputs]: rows of the head's answers per input
    gold: NDArray[Any]  # [U] or [U, 2]: targets of all inputs, in their order
    bundle_sizes: Ints | None = field(default=None, kw_only=True)  # inputs per bundle; None: 1 each
    # [inputs] number of each input's example; None: the number of its bundle
    owners: Ints | None = field(default=None, kw_only=True)

    def batch(self, bundles: Ints) -> tuple[InputBatch, Tensor]:
        """Return the inputs of `bundles`, bundle after bundle, and their targets gold_U."""
        rows = self.rows(bundles)
        return self.inputs.batch(rows), torch.from_numpy(self.gold[self.places(rows)])

    def rows(self, bundles: Ints) -> Ints:
        """Return the numbers of the inputs of `bundles`."""
        if self.bundle_sizes is None:
            return bundles
        return runs(_starts(self.bundle_sizes)[bundles], self.bundle_sizes[bundles])[0]

    @cached_property
    def lengths(self) -> Ints:
        """[bundles] units of each bundle's longest input."""
        if self.bundle_sizes is None:
            return self.inputs.lengths
        return np.maximum.reduceat(self.inputs.lengths, _starts(self.bundle_sizes))

    @property
    def cut_examples(self) -> int:
        """Number of examples of which something was truncated."""
        is_cut = np.flatnonzero(self.inputs.truncated)
        if self.owners is not None:
            return len(np.unique(self.owners[is_cut]))
        if self.bundle_sizes is not None:
            ends = np.cumsum(self.bundle_sizes)
            return len(np.unique(np.searchsorted(ends, is_cut, side="right")))
        return len(is_cut)

    def places(self, rows: Ints) -> Ints:
        """Return the indices into `gold` of the inputs `rows`."""
        return runs(self._starts[rows], self.counts[rows])[0]

    @cached_property
    def _starts(self) -> Ints:
        return _starts(self.counts)


def _starts(sizes: Ints) -> Ints:
    return np.cumsum(sizes) - sizes


def training_order(lengths: Ints, batch_size: int, rng: np.random.Generator) -> list[Ints]:
    """Return all bundles in batches of similar length, in random order.

    Bundles are shuffled, sorted by length within windows of WINDOW batches, and the batches are
    shuffled. Similar lengths matter because recurrent layers take as many steps as the longest
    input has units. In a batch longer bundles come first.
    """
    order = rng.permutation(len(lengths))
    batches = []
    for start in range(0, len(order), WINDOW * batch_size):
        window = order[start : start + WINDOW * batch_size]
        window = window[np.argsort(-lengths[window], kind="stable")]
        batches += [window[i : i + batch_size] for i in range(0, len(window), batch_size)]
    return [batches[i] for i in rng.permutation(len(batches))]
