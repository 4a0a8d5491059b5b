"""Runs of rows are reduced the same way where torch has no operation for it (mps)."""

import pytest
import torch

from pipeline.encoders.segments import _reduce_by_index, reduce_segments


@pytest.mark.parametrize("how", ["max", "sum", "mean"])
def test_runs_are_reduced_by_index_as_by_segment(how: str) -> None:
    torch.manual_seed(0)
    lengths_E = torch.tensor([3, 1, 4, 2])
    results = []
    for reduce in (reduce_segments, _reduce_by_index):
        x_ND = torch.arange(30.0).view(10, 3).sin().requires_grad_()
        reduced_ED = reduce(x_ND, how, lengths_E)
        torch.autograd.backward((reduced_ED**2).sum())
        results.append((reduced_ED, x_ND.grad))
    torch.testing.assert_close(results[0], results[1])
    first = torch.arange(9.0).view(3, 3).sin()
    expected = {"max": first.amax(0), "sum": first.sum(0), "mean": first.mean(0)}[how]
    torch.testing.assert_close(results[0][0][0], expected)
