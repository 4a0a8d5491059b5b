"""Gradients of a large matrix of which a step reads few rows, kept by row.

A softmax over 793,000 words of width 512 has 1.6 GB of weights. A step reads some ten thousand of
its rows, so that almost all of a dense gradient is zeros. `RowGradients` keeps the gradients of the
rows that were read. An optimizer that leaves rows without a gradient unchanged (Adagrad without
weight decay) gives the same result from them. Nothing here waits for the device.

V rows of the matrix, P its width, N rows that were read, with repetitions
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Rows:
    """Rows of a gradient: row number and values. A row number may occur again with zeros."""

    numbers_N: Tensor
    values_NP: Tensor


class RowGradients:
    """Collects the gradients of the rows that forward passes read from `weight`."""

    def __init__(self, weight: nn.Parameter) -> None:
        self.weight = weight
        self._read: list[Rows] = []  # per forward pass; the values are leaves of autograd

    def gather(self, numbers_N: Tensor) -> Tensor:
        """Return rows of the weight, [N, P], and remember them for `take`."""
        rows_NP = self.weight.detach()[numbers_N].requires_grad_()
        self._read.append(Rows(numbers_N, rows_NP))
        return rows_NP

    def take(self) -> Rows:
        """Return the gradients since the last call, of all forward passes; forget them."""
        read, self._read = self._read, []
        values = [each.values_NP.grad for each in read]
        assert all(value is not None for value in values), "a forward pass without backward"
        return Rows(
            torch.cat([each.numbers_N for each in read]),
            torch.cat([value for value in values if value is not None]),
        )


def summed(rows: Rows) -> Rows:
    """Return the sum per row number, in N rows; those left over have number 0 and values 0."""
    sorted_N, order_N = rows.numbers_N.sort(stable=True)
    is_new_N = torch.ones_like(sorted_N)
    is_new_N[1:] = sorted_N[1:] != sorted_N[:-1]
    places_N = is_new_N.cumsum(0) - 1
    numbers_N = torch.zeros_like(sorted_N).scatter_(0, places_N, sorted_N)
    # The backward pass of an embedding sums repeated rows in a fixed order, also on CUDA.
    values_NP = torch.ops.aten.embedding_dense_backward(
        rows.values_NP.index_select(0, order_N), places_N, len(sorted_N), -1, False
    )
    return Rows(numbers_N, values_NP)


def read_rows(weight: Tensor, numbers_N: Tensor, gradients: RowGradients | None) -> Tensor:
    """Return rows of a weight, [N, P]; their gradients go to `gradients`, if given."""
    if gradients is None or not torch.is_grad_enabled():
        return F.embedding(numbers_N, weight)
    return gradients.gather(numbers_N)
