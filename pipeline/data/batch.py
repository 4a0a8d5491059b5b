"""A micro-batch as the model reads it: rows of a chunk with masks put in, nothing padded.

Shapes: N pieces, E examples, M predictions. Examples lie one after another, packed or not;
attention finds its way by `lengths`.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data_prep.examples.chunks import Chunk

IGNORE_INDEX = -100  # cross_entropy's ignore_index


@dataclass(frozen=True)
class Batch:
    """One forward pass of one rank."""

    tokens_N: Tensor  # int64, masks put in
    positions_N: Tensor  # int64, from 0 in every example
    segments_N: Tensor  # int64, 0 or 1
    lengths: NDArray[np.int64]  # [E] on the host, so that attention plans without a device sync
    targets_M: Tensor  # int64, indices into N
    labels_M: Tensor  # int64, the ids to predict
    pair_labels_E: Tensor  # int64: 0 next or in order, 1 random or swapped, IGNORE_INDEX where none

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on `device`."""
        return Batch(
            tokens_N=self.tokens_N.to(device, non_blocking=True),
            positions_N=self.positions_N.to(device, non_blocking=True),
            segments_N=self.segments_N.to(device, non_blocking=True),
            lengths=self.lengths,
            targets_M=self.targets_M.to(device, non_blocking=True),
            labels_M=self.labels_M.to(device, non_blocking=True),
            pair_labels_E=self.pair_labels_E.to(device, non_blocking=True),
        )


def collate(rows: Chunk) -> Batch:
    """Rows that have their masks, as one batch in which these hide what is to be predicted."""
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
