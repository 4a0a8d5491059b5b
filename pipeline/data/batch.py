"""Micro-batches of BERT: the examples of several rows, concatenated without padding.

Packed rows need no special treatment: `lengths` tells attention where each example ends.

N tokens, E examples, M predictions
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data_prep.examples.chunks import Chunk
from pipeline.data.device import send

IGNORE_INDEX = -100  # torch's default ignore_index of cross_entropy


@dataclass(frozen=True)
class Batch:
    """The input of one forward pass on one rank."""

    tokens_N: Tensor  # int64, with masks applied
    positions_N: Tensor  # int64, counted from 0 in every example
    segments_N: Tensor  # int64, 0 or 1
    lengths: NDArray[np.int64]  # [E] on the host: planning attention then needs no device sync
    targets_M: Tensor  # int64, indices into N
    labels_M: Tensor  # int64, ids to predict
    pair_labels_E: Tensor  # int64: 0 next or in order, 1 random or swapped, IGNORE_INDEX if no pair

    def to(self, device: torch.device | str) -> "Batch":
        """Return a copy of the batch on `device`."""
        return Batch(
            tokens_N=send(self.tokens_N, device),
            positions_N=send(self.positions_N, device),
            segments_N=send(self.segments_N, device),
            lengths=self.lengths,
            targets_M=send(self.targets_M, device),
            labels_M=send(self.labels_M, device),
            pair_labels_E=send(self.pair_labels_E, device),
        )


def collate(rows: Chunk) -> Batch:
    """Convert masked rows to one batch; `rows` is not changed."""
    assert rows.target is not None and rows.target_examples is not None
    assert rows.input is not None, "rows without masks"
    starts = rows.example_tokens[:-1]
    lengths = np.diff(rows.example_tokens)
    tokens_N = rows.tokens.astype(np.int64)
    positions_N = np.arange(len(tokens_N)) - np.repeat(starts, lengths)
    segments_N = positions_N >= np.repeat(rows.second, lengths)
    targets_M = np.repeat(starts, np.diff(rows.target_examples)) + rows.target.astype(np.int64)
    labels_M = tokens_N[targets_M]
    tokens_N[targets_M] = rows.input
    pair_labels_E = np.where(rows.label < 0, IGNORE_INDEX, rows.label).astype(np.int64)
    return Batch(
        tokens_N=torch.from_numpy(tokens_N),
        positions_N=torch.from_numpy(positions_N),
        segments_N=torch.from_numpy(segments_N.astype(np.int64)),
        lengths=lengths.astype(np.int64),
        targets_M=torch.from_numpy(targets_M),
        labels_M=torch.from_numpy(labels_M),
        pair_labels_E=torch.from_numpy(pair_labels_E),
    )
