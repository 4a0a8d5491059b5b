"""Gradients by row are those of a dense matrix; Adagrad makes the same of both."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.models.elmo.config import ElmoConfig
from pipeline.models.elmo.family import ELMO
from pipeline.models.elmo.network import ElmoForPretraining
from pipeline.models.row_gradients import RowGradients, Rows, summed
from pipeline.training.optimizers.adagrad import Adagrad

V, P = 50, 4


def passes() -> list[tuple[Tensor, Tensor]]:
    """Row numbers, with repetitions within and between passes, and the loss's weights of them."""
    torch.manual_seed(1)
    return [(torch.randint(V, (30,)), torch.randn(30, P)) for _ in range(3)]


def dense_gradient(weight: nn.Parameter) -> Tensor:
    weight.grad = None
    for numbers, factors in passes():
        (F.embedding(numbers, weight) * factors).sum().backward()
    assert weight.grad is not None
    gradient, weight.grad = weight.grad, None
    return gradient


def row_gradient(weight: nn.Parameter) -> Rows:
    kept = RowGradients(weight)
    for numbers, factors in passes():
        (kept.gather(numbers) * factors).sum().backward()
    assert weight.grad is None
    return summed(kept.take())


def test_rows_add_up_to_the_dense_gradient() -> None:
    weight = nn.Parameter(torch.randn(V, P))
    rows = row_gradient(weight)
    scattered = torch.zeros(V, P).index_add_(0, rows.numbers_N, rows.values_NP)
    torch.testing.assert_close(scattered, dense_gradient(weight), rtol=1e-6, atol=1e-6)
    used = rows.numbers_N[rows.values_NP.any(1)]
    assert len(used.unique()) == len(used)  # each row once


@pytest.mark.parametrize("found_inf", [0.0, 1.0])
def test_adagrad_by_row_equals_adagrad(found_inf: float) -> None:
    torch.manual_seed(0)
    start = torch.randn(V, P)
    results = []
    for by_row in (False, True):
        weight = nn.Parameter(start.clone())
        optimizer = Adagrad([weight], initial_accumulator=1.0, eps=1e-10, lr=0.2)
        weight.grad = torch.zeros_like(weight)
        optimizer.step()  # creates the state
        weight.grad = None
        optimizer.found_inf = torch.tensor(found_inf)
        for _ in range(3):
            if by_row:
                optimizer.rows[weight] = row_gradient(weight)
            else:
                weight.grad = dense_gradient(weight)
            optimizer.step()
        state = optimizer.state[weight]
        results.append((weight.detach(), state["sum"], state["step"]))
    for dense, by_rows in zip(*results, strict=True):
        torch.testing.assert_close(by_rows, dense, rtol=1e-6, atol=1e-7)
    assert results[1][2] == (1 if found_inf else 4)
    assert torch.equal(results[1][0], start) == bool(found_inf)


def test_elmo_keeps_rows_of_its_softmax_unless_it_reads_all() -> None:
    for samples, expected in ((8, ["softmax.weight"]), (0, []), (V, [])):
        config = ElmoConfig(
            layers=1, cell=6, projection=4, character_dim=4, filters=[[1, 4]], highways=1,
            samples=samples,
        )  # fmt: skip
        network = ElmoForPretraining(config, V)
        assert list(ELMO.keep_row_gradients(config, network, V)) == expected
