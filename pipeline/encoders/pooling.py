"""Pool the vectors of units into one vector per input.

N units of a batch, E inputs, D width
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

POOLINGS = ("mean", "first", "max")


def pool(x_ND: Tensor, lengths: NDArray[np.int64], how: str) -> Tensor:
    """Return one vector per run of units; `how` is one of POOLINGS."""
    lengths_E = torch.from_numpy(lengths).to(x_ND.device)
    if how == "first":
        return x_ND[lengths_E.cumsum(0) - lengths_E]
    return reduce_runs(x_ND, lengths_E, how)


def reduce_runs(x_ND: Tensor, lengths_E: Tensor, how: str) -> Tensor:
    """Return the `sum`, `mean` or `max` of each run of rows [E, D]; runs follow one another."""
    if x_ND.device.type == "mps":  # it has no segment_reduce
        return scatter_runs(x_ND, lengths_E, how)
    return torch.segment_reduce(x_ND, how, lengths=lengths_E)


def scatter_runs(x_ND: Tensor, lengths_E: Tensor, how: str) -> Tensor:
    """Return the same as `reduce_runs`, without segment_reduce."""
    run_N = torch.repeat_interleave(lengths_E, output_size=len(x_ND))
    empty_ED = x_ND.new_zeros(len(lengths_E), x_ND.shape[1])
    name = "amax" if how == "max" else how
    index_ND = run_N[:, None].expand_as(x_ND)
    return empty_ED.scatter_reduce(0, index_ND, x_ND, name, include_self=False)
