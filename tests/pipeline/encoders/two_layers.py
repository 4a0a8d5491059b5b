"""An encoder with layers whose hidden states are known, for tests of what reads them."""

import numpy as np
from torch import Tensor

from data_prep.vectors.table import VectorTable
from pipeline.encoders import InputBatch, StaticEncoder


class TwoLayers(StaticEncoder):
    """Static vectors, and two layers above them; counts what it computes."""

    states = 3

    def __init__(self) -> None:
        super().__init__(VectorTable(["a", "b"], np.eye(2, dtype=np.float32)))
        self.computed = 0
        self.factor = 1.0

    def forward(self, batch: InputBatch) -> list[Tensor]:
        self.computed += len(batch.tokens_N)
        (x,) = super().forward(batch)
        x = self.factor * x
        return [x, x + 1, 2 * x]
