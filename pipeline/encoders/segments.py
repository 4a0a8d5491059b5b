"""Reduce runs of rows: the maximum, sum or mean of each run. Works on every device.

N rows, E runs, D width
"""

import torch
from torch import Tensor


def reduce_segments(x_ND: Tensor, how: str, lengths_E: Tensor) -> Tensor:
    """Return `how` (max, sum or mean) of each run of rows, [E, D]; no run may be empty."""
    if x_ND.device.type != "mps":
        return torch.segment_reduce(x_ND, how, lengths=lengths_E)
    return _reduce_by_index(x_ND, how, lengths_E)  # mps has no segment_reduce


def _reduce_by_index(x_ND: Tensor, how: str, lengths_E: Tensor) -> Tensor:
    runs_N = torch.arange(len(lengths_E), device=x_ND.device).repeat_interleave(lengths_E)
    if how == "max":
        index_ND = runs_N[:, None].expand_as(x_ND)
        least_ED = x_ND.new_full((len(lengths_E), *x_ND.shape[1:]), -torch.inf)
        return least_ED.scatter_reduce(0, index_ND, x_ND, "amax")
    zeros_ED = x_ND.new_zeros((len(lengths_E), *x_ND.shape[1:]))
    sums_ED = zeros_ED.index_add(0, runs_N, x_ND)
    return sums_ED / lengths_E[:, None] if how == "mean" else sums_ED
