"""Tables of embeddings under AdamW, at the price of the rows that a step reads.

AdamW moves all rows at all steps: where a row has no gradient its moments fall, and it follows them
and decays. With 30,522 pieces that is 70 % of bert_mini's parameters, of which a batch of sentences
reads one in a hundred. Steps without gradient have a closed form, so here a row makes them all at
once when it is read again. What comes out is what torch's AdamW gives, but for rounding; rows that
no training batch reads stay as they are.

A row with moments m, v after step s is, after step t,

    θ Π_{s<j≤t} (1 - lr_j λ)  -  m / √v · Σ_{s<j≤t} lr_j c_j ρ^(j-s) Π_{j<i≤t} (1 - lr_i λ)

with ρ = β1 / √β2 and Adam's corrections c_j = √(1 - β2^j) / (1 - β1^j). The sum, a row's drift,
depends on s and t alone. (ε, which keeps √v from zero, is taken to fade as √v does.)

T rows of a table, R rows that a batch reads, D width
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

MANY = 1000  # rows of a table that is worth it
BETA1, BETA2, EPS = 0.9, 0.999, 1e-8  # as torch's AdamW has them
LASTING = 512  # steps for which a moment still moves its row: ρ^512 is 5e-24
FADES = (BETA1 / BETA2**0.5) ** np.arange(LASTING, 0, -1)


class Rows(NamedTuple):
    """Some rows of a table as they are now, with their moments."""

    numbers_R: Tensor
    values_RD: Tensor
    mean_RD: Tensor
    square_RD: Tensor


class LazyEmbedding(nn.Embedding):
    """`nn.Embedding` that trains itself: `step` after each backward, not an optimizer's.

    Out of training mode all rows are up to date.
    """

    def __init__(self, table: nn.Embedding) -> None:
        super().__init__(table.num_embeddings, table.embedding_dim, _weight=table.weight.detach())
        self.weight = table.weight
        self._mean_TD = torch.zeros_like(self.weight.detach())
        self._square_TD = torch.zeros_like(self._mean_TD)
        self._made_T = torch.zeros_like(self._mean_TD[:, 0], dtype=torch.int64)  # steps of each row
        self._kept = np.ones(1)  # what decay has left of a weight, after each step
        self._drift = np.zeros(1)  # of rows that have made 0, 1, 2 … steps
        self._read: Rows | None = None

    @property
    def steps(self) -> int:
        """How many there have been."""
        return len(self._kept) - 1

    def forward(self, tokens_N: Tensor) -> Tensor:
        """Vectors of the tokens; in training, of leaves that hold the rows until `step`."""
        if not self.training:
            return super().forward(tokens_N)
        numbers_R, places_N = torch.unique(tokens_N, return_inverse=True)
        self._read = self._current(numbers_R)
        self._read.values_RD.requires_grad_()
        return nn.functional.embedding(places_N, self._read.values_RD)

    def read_values(self) -> Tensor:
        """The rows that were read last, whose gradient `step` will follow."""
        assert self._read is not None
        return self._read.values_RD

    @torch.no_grad()
    def step(self, rate: float, decay: float, divisor: Tensor | None = None) -> None:
        """One step of AdamW with this learning rate and weight decay; gradients may be divided."""
        assert self._read is not None
        rows, self._read = self._read, None
        gradient_RD = rows.values_RD.grad
        assert gradient_RD is not None
        if divisor is not None:
            gradient_RD.div_(divisor)
        number = self.steps + 1
        rows.mean_RD.lerp_(gradient_RD, 1 - BETA1)
        rows.square_RD.mul_(BETA2).addcmul_(gradient_RD, gradient_RD, value=1 - BETA2)
        correction = 1 - BETA2**number
        root_RD = (rows.square_RD / correction).sqrt_().add_(EPS)
        values_RD = rows.values_RD.detach().mul_(1 - rate * decay)
        values_RD.addcdiv_(rows.mean_RD, root_RD, value=-rate / (1 - BETA1**number))

        self._drift *= 1 - rate * decay
        recent = self._drift[-LASTING:]
        recent += rate * correction**0.5 / (1 - BETA1**number) * FADES[-len(recent) :]
        self._drift = np.append(self._drift, 0.0)
        self._kept = np.append(self._kept, self._kept[-1] * (1 - rate * decay))
        self._write(rows)

    @torch.no_grad()
    def train(self, mode: bool = True) -> "LazyEmbedding":
        """Leaving training mode makes the steps that rows have put off."""
        if self.training and not mode:
            self._write(self._current(self._made_T.nonzero()[:, 0]))
        super().train(mode)
        return self

    @torch.no_grad()
    def _current(self, numbers_R: Tensor) -> Rows:
        """These rows after all steps so far."""
        made_R = self._made_T[numbers_R].cpu().numpy()

        def column(values: np.ndarray) -> Tensor:
            return torch.from_numpy(values).to(self.weight)[:, None]

        values_RD, mean_RD, square_RD = (
            whole.index_select(0, numbers_R)
            for whole in (self.weight, self._mean_TD, self._square_TD)
        )
        least_R1 = column(EPS * np.sqrt(1 - BETA2 ** (made_R + 1)))
        direction_RD = mean_RD / square_RD.sqrt().add_(least_R1)
        values_RD.mul_(column(self._kept[-1] / self._kept[made_R]))
        values_RD.sub_(direction_RD.mul_(column(self._drift[made_R])))
        late_R = self.steps - made_R
        return Rows(
            numbers_R,
            values_RD,
            mean_RD.mul_(column(BETA1**late_R)),
            square_RD.mul_(column(BETA2**late_R)),
        )

    def _write(self, rows: Rows) -> None:
        for whole, part_RD in (
            (self.weight, rows.values_RD),
            (self._mean_TD, rows.mean_RD),
            (self._square_TD, rows.square_RD),
        ):
            whole.index_copy_(0, rows.numbers_R, part_RD)
        self._made_T[rows.numbers_R] = self.steps


@contextmanager
def lazy_tables(model: nn.Module) -> Iterator[list[LazyEmbedding]]:
    """The model's large tables that are to be trained, lazy meanwhile; their weights are the same.

    Training ends out of training mode: then nothing is put off.
    """
    found = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if isinstance(child, nn.Embedding)
        and child.weight.requires_grad
        and child.num_embeddings >= MANY
    ]
    lazy = [LazyEmbedding(table) for _, _, table in found]
    for (parent, name, table), own in zip(found, lazy, strict=True):
        setattr(parent, name, own.train(table.training))
    try:
        yield lazy
    finally:
        for parent, name, table in found:
            setattr(parent, name, table)
