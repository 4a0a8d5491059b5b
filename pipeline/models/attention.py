"""Attention inside each example of a flat, unpadded batch: one function, `attend`, on every device.

Rows of a flat batch are pieces of all examples, one after another. An `AttentionPlan` is made once
a batch from the examples' lengths (on the host, so that no device has to wait) and shared by all
layers. It sorts examples by length: those of equal length then lie side by side and are attended
as one dense block, without a mask and without copying.

N pieces, B examples of a block, L its length, H heads, D width of a head
"""

from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Block:
    """Neighbouring examples of equal length."""

    start: int
    examples: int
    length: int

    @property
    def end(self) -> int:
        return self.start + self.examples * self.length


@dataclass(frozen=True)
class AttentionPlan:
    """How the pieces of a batch are laid out for attention."""

    blocks: tuple[Block, ...]
    order_N: Tensor | None  # sorted row -> given row; none where already sorted
    place_N: Tensor | None  # given row -> sorted row
    starts_E: Tensor  # sorted row of each example's first piece, in the given order

    @classmethod
    def of(cls, lengths: np.ndarray, device: torch.device | str = "cpu") -> "AttentionPlan":
        """Plan for examples of these lengths."""
        lengths = np.asarray(lengths, dtype=np.int64)
        by_length = np.argsort(lengths, kind="stable")
        sorted_lengths = lengths[by_length]
        ends = np.cumsum(sorted_lengths)
        starts_E = np.empty_like(lengths)
        starts_E[by_length] = ends - sorted_lengths
        blocks, start = [], 0
        for length, group in groupby(sorted_lengths.tolist()):
            block = Block(start, len(list(group)), length)
            blocks.append(block)
            start = block.end
        if np.array_equal(by_length, np.arange(len(lengths))):
            return cls(tuple(blocks), None, None, torch.from_numpy(starts_E).to(device))
        given_starts = np.cumsum(lengths) - lengths
        place_N = np.repeat(starts_E - given_starts, lengths) + np.arange(lengths.sum())
        order_N = np.empty_like(place_N)
        order_N[place_N] = np.arange(len(place_N))
        return cls(
            tuple(blocks),
            torch.from_numpy(order_N).to(device),
            torch.from_numpy(place_N).to(device),
            torch.from_numpy(starts_E).to(device),
        )

    def sort(self, x_N: Tensor) -> Tensor:
        """Rows in the given order, put into the plan's order."""
        return x_N if self.order_N is None else x_N.index_select(0, self.order_N)

    def restore(self, x_N: Tensor) -> Tensor:
        """Rows in the plan's order, put back into the given order."""
        return x_N if self.place_N is None else x_N.index_select(0, self.place_N)

    def rows(self, indices: Tensor) -> Tensor:
        """Given row numbers as row numbers of the plan's order."""
        return indices if self.place_N is None else self.place_N[indices]


def attend(
    q_NHD: Tensor, k_NHD: Tensor, v_NHD: Tensor, plan: AttentionPlan, dropout: float
) -> Tensor:
    """Softmax attention of every piece to the pieces of its own example, in the plan's order."""
    outputs = []
    for block in plan.blocks:
        q, k, v = (
            x[block.start : block.end].unflatten(0, (block.examples, block.length)).transpose(1, 2)
            for x in (q_NHD, k_NHD, v_NHD)
        )
        x_BHLD = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
        outputs.append(x_BHLD.transpose(1, 2).flatten(0, 1))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)
