"""Adagrad by its definition, whatever kernel computes it."""

import pytest
import torch

from pipeline.training.optimizer import Adagrad


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adagrad_follows_its_definition_and_leaves_rows_without_gradient(decay: float) -> None:
    torch.manual_seed(0)
    start = torch.randn(7, 5)
    parameter = torch.nn.Parameter(start.clone())
    group = {"params": [parameter], "weight_decay": decay}
    optimizer = Adagrad([group], initial_accumulator=1.0, eps=1e-10, lr=0.2)
    expected, sums = start.double(), torch.ones(7, 5).double()
    for _ in range(3):
        gradient = torch.randn(7, 5)
        gradient[2:4] = 0  # as of words that a step neither reads nor samples
        parameter.grad = gradient.clone()
        optimizer.step()
        sums += gradient.double() ** 2
        expected = expected * (1 - 0.2 * decay) - 0.2 * gradient.double() / sums.sqrt()
    torch.testing.assert_close(parameter.detach().double(), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(optimizer.state[parameter]["sum"].double(), sums)
    assert optimizer.state[parameter]["step"] == 3
    assert torch.equal(parameter[2:4], start[2:4]) == (decay == 0)


def test_a_step_with_found_inf_changes_nothing() -> None:
    parameter = torch.nn.Parameter(torch.ones(4))
    group = {"params": [parameter], "weight_decay": 0.1}
    optimizer = Adagrad([group], initial_accumulator=1.0, eps=1e-10, lr=0.2)
    optimizer.found_inf = torch.tensor(1.0)
    parameter.grad = torch.full((4,), torch.nan)
    optimizer.step()
    assert torch.equal(parameter, torch.ones(4))
    assert torch.equal(optimizer.state[parameter]["sum"], torch.ones(4))
    assert optimizer.state[parameter]["step"] == 0
