"""AdamW for embedding tables that updates only the rows a batch reads.

AdamW updates all rows in all steps: without a gradient a row's moments shrink, the row still moves
along them, and weight decay applies. With 30,522 tokens the table is 70 % of bert_mini's
parameters, and a batch of sentences reads one row in a hundred. Steps without a gradient have a
closed form, so here a row makes up all missed steps at once when it is next read. The result equals
torch's AdamW up to rounding, except that rows that no training batch reads keep their values.

A row θ with moments m, v after step s is, after step t without gradients,

    θ Π_{s<j≤t} (1 - lr_j λ)  -  m / √v · Σ_{s<j≤t} lr_j c_j ρ^(j-s) Π_{j<i≤t} (1 - lr_i λ)

with ρ = β1 / √β2 and Adam's bias corrections c_j = √(1 - β2^j) / (1 - β1^j). The sum, called the
row's drift, depends only on s and t. (ε, which keeps √v from zero, is assumed to shrink as √v.)

T rows of a table, R rows that a batch reads, D width
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.encoders import Encoder

MANY = 1000  # tables with fewer rows are left to the normal optimizer
BETA1, BETA2, EPS = 0.9, 0.999, 1e-8  # the defaults of torch's AdamW
LASTING = 512  # missed steps in which a moment still moves its row: ρ^512 is 5e-24
FADES = (BETA1 / BETA2**0.5) ** np.arange(LASTING, 0, -1)


class Rows(NamedTuple):
    """Up-to-date rows of a table, with their moments."""

    numbers_R: Tensor  # row numbers in the table
    values_RD: Tensor
    mean_RD: Tensor  # first moment
    square_RD: Tensor  # second moment


class LazyEmbedding(nn.Embedding):
    """`nn.Embedding` with its own AdamW: call `step` after each backward, not an optimizer.

    In evaluation mode all rows are up to date.
    """

    def __init__(self, table: nn.Embedding) -> None:
        super().__init__(table.num_embeddings, table.embedding_dim, _weight=table.weight.detach())
        self.weight = table.weight
        self._mean_TD = torch.zeros_like(self.weight.detach())
        self._square_TD = torch.zeros_like(self._mean_TD)
        # [T]: the step up to which each row is updated; 0 for rows never read.
        self._made_T = torch.zeros_like(self._mean_TD[:, 0], dtype=torch.int64)
        self._kept = np.ones(1)  # [steps + 1]: product of the decay factors after each step
        self._drift = np.zeros(1)  # [steps + 1]: drift of rows updated up to step 0, 1, 2, ...
        self._read: Rows | None = None

    @property
    def steps(self) -> int:
        """Number of optimizer steps so far."""
        return len(self._kept) - 1

    def forward(self, tokens_N: Tensor) -> Tensor:
        """Return the tokens' vectors [N, D].

        In training mode they are computed from a leaf tensor that holds the rows until `step`.
        """
        if not self.training:
            return super().forward(tokens_N)
        numbers_R, places_N = torch.unique(tokens_N, return_inverse=True)
        self._read = self._current(numbers_R)
        self._read.values_RD.requires_grad_()
        return nn.functional.embedding(places_N, self._read.values_RD)

    def read_values(self) -> Tensor:
        """Return the rows of the last forward pass, whose gradient `step` uses."""
        assert self._read is not None
        return self._read.values_RD

    @torch.no_grad()
    def step(self, rate: float, decay: float, divisor: Tensor | None = None) -> None:
        """Take one AdamW step with this learning rate and weight decay.

        Needs a forward and backward pass before it. Gradients are first divided by `divisor`.
        """
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

    def moments(self) -> dict[str, Tensor]:
        """Return all state besides the table itself, for a checkpoint."""
        return {
            "exp_avg": self._mean_TD,
            "exp_avg_sq": self._square_TD,
            "made": self._made_T,
            "kept": torch.from_numpy(self._kept),
            "drift": torch.from_numpy(self._drift),
        }

    def restore(self, moments: dict[str, Tensor]) -> None:
        """Load what `moments` returned."""
        self._mean_TD.copy_(moments["exp_avg"])
        self._square_TD.copy_(moments["exp_avg_sq"])
        self._made_T.copy_(moments["made"])
        self._kept, self._drift = moments["kept"].numpy(), moments["drift"].numpy()

    @torch.no_grad()
    def train(self, mode: bool = True) -> "LazyEmbedding":
        """Set training mode; leaving it applies all missed steps to the table."""
        if self.training and not mode:
            self._write(self._current(self._made_T.nonzero()[:, 0]))
        super().train(mode)
        return self

    @torch.no_grad()
    def _current(self, numbers_R: Tensor) -> Rows:
        """Return these rows with all missed steps applied; does not write them to the table."""
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


def large_tables(encoder: Encoder) -> list[nn.Embedding]:
    """Return the trained tables of which a batch reads few rows; rows never read keep their values.

    Training on ranks updates whole tables. Its result is made to agree, see `rank_loop`.
    """
    return [
        table
        for table in encoder.lookup_tables()
        if table.weight.requires_grad and table.num_embeddings >= MANY
    ]


@contextmanager
def lazy_tables(encoder: Encoder) -> Iterator[list[LazyEmbedding]]:
    """Replace the encoder's `large_tables` by lazy ones; restore them on exit.

    The weights are shared. Leave training mode before the exit, so that no step is missing.
    """
    tables = {id(table) for table in large_tables(encoder)}
    found = [
        (parent, name, child)
        for parent in encoder.modules()
        for name, child in parent.named_children()
        if isinstance(child, nn.Embedding) and id(child) in tables
    ]
    lazy = [LazyEmbedding(table) for _, _, table in found]
    for (parent, name, table), own in zip(found, lazy, strict=True):
        setattr(parent, name, own.train(table.training))
    try:
        yield lazy
    finally:
        for parent, name, table in found:
            setattr(parent, name, table)
