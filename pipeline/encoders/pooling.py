"""Pool the vectors of units into one vector per input.

N units of a batch, E inputs, D width
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.encoders.segments import reduce_segments

POOLINGS = ("mean", "first", "max")


def pool(x_ND: Tensor, lengths: NDArray[np.int64], how: str) -> Tensor:
    """Return one vector per run of units; `how` is one of POOLINGS."""
    lengths_E = torch.from_numpy(lengths).to(x_ND.device)
    if how == "first":
        return x_ND[lengths_E.cumsum(0) - lengths_E]
    return reduce_segments(x_ND, how, lengths_E)
