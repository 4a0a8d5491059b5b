"""Optimizers by their definitions, whatever kernel computes them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from data_prep.errors import UsageError
from pipeline.config.schema import Config
from pipeline.models.bert.config import BertConfig
from pipeline.models.bert.family import BERT
from pipeline.models.bert.network import BertForPretraining
from pipeline.stages.pretrain import Pretrain
from pipeline.training.config import OptimConfig
from pipeline.training.optimizers.adagrad import Adagrad
from pipeline.training.optimizers.lamb import Lamb
from pipeline.training.optimizers.make import make_optimizer
from pipeline.training.optimizers.muon import Muon, orthogonalised
from pipeline.training.optimizers.stable_adamw import StableAdamW


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


STEPS = 4
BETAS = (0.9, 0.98)


def trained(
    optimizer: type[torch.optim.Optimizer], shape: tuple[int, ...], **options: Any
) -> tuple[Tensor, list[Tensor], Tensor]:
    """Return the weight before, the gradients, and the weight after some updates."""
    torch.manual_seed(0)
    start = torch.randn(shape)
    gradients = [torch.randn(shape) * 10**number for number in range(STEPS)]
    parameter = torch.nn.Parameter(start.clone())
    made = optimizer([{"params": [parameter], "weight_decay": 0.1}], lr=0.01, **options)  # type: ignore[call-arg]
    for gradient in gradients:
        parameter.grad = gradient.clone()
        made.step()
    return start.double(), gradients, parameter.detach().double()


@pytest.mark.parametrize("shape", [(6, 5), (7,)])
def test_lamb_follows_its_definition(shape: tuple[int, ...]) -> None:
    weight, gradients, found = trained(Lamb, shape, betas=BETAS, eps=1e-6)
    m = v = torch.zeros(shape).double()
    for number, gradient in enumerate(gradients, 1):
        m = BETAS[0] * m + (1 - BETAS[0]) * gradient
        v = BETAS[1] * v + (1 - BETAS[1]) * gradient**2
        root = (v / (1 - BETAS[1] ** number)).sqrt() + 1e-6
        direction = m / (1 - BETAS[0] ** number) / root + 0.1 * weight
        ratio = weight.norm() / direction.norm() if weight.ndim > 1 else 1.0
        weight = weight - 0.01 * ratio * direction
    torch.testing.assert_close(found, weight, rtol=1e-5, atol=1e-5)


def test_a_matrix_of_zeros_leaves_zero_under_lamb() -> None:
    parameter = torch.nn.Parameter(torch.zeros(3, 3))
    optimizer = Lamb([parameter], betas=BETAS, eps=1e-6, lr=0.1)
    parameter.grad = torch.ones(3, 3)
    optimizer.step()
    torch.testing.assert_close(parameter.detach(), torch.full((3, 3), -0.1))


def test_stable_adamw_follows_its_definition() -> None:
    weight, gradients, found = trained(StableAdamW, (6, 5), betas=BETAS, eps=1e-6)
    m = v = torch.zeros(6, 5).double()
    clipped = []
    for number, gradient in enumerate(gradients, 1):
        # The weighted means of all gradients so far, newest first.
        first, second = (
            torch.tensor([(1 - beta) * beta**age / (1 - beta**number) for age in range(number)])
            for beta in BETAS
        )
        newest_first = torch.stack(gradients[:number][::-1]).double()
        m = torch.einsum("a,aij->ij", first.double(), newest_first)
        v = torch.einsum("a,aij->ij", second.double(), newest_first**2)
        surprise = (gradient.double() ** 2 / v).mean().sqrt()
        clipped.append(bool(surprise > 1))
        lr = 0.01 / max(1.0, float(surprise))
        weight = weight - lr * (m / (v.sqrt() + 1e-6) + 0.1 * weight)
    assert any(clipped)
    torch.testing.assert_close(found, weight, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(2, 20, 12), (1, 9, 30)])
def test_orthogonalised_matrices_keep_their_vectors_and_lose_their_sizes(
    shape: tuple[int, ...],
) -> None:
    torch.manual_seed(0)
    matrices = torch.randn(shape) * 100
    found = orthogonalised(matrices)
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    inside = left.mT @ found @ right.mT  # diagonal, if the singular vectors are the same
    sizes = inside.diagonal(dim1=1, dim2=2)
    assert (inside - torch.diag_embed(sizes)).abs().max() < 1e-3
    assert sizes.min() > 0.5 and sizes.max() < 1.3  # as the coefficients' author states


def test_muon_orthogonalises_stacked_matrices_separately() -> None:
    torch.manual_seed(0)
    gradient = torch.cat([torch.randn(4, 4), 1000 * torch.randn(4, 4)])
    updates = []
    for parts in (gradient, gradient[:4], gradient[4:]):
        parameter = torch.nn.Parameter(torch.zeros_like(parts))
        group = {"params": [parameter], "stacked": len(parts) // 4}
        optimizer = Muon([group], momentum=0.95, betas=BETAS, eps=1e-8, lr=1.0)
        parameter.grad = parts.clone()
        optimizer.step()
        updates.append(parameter.detach())
    torch.testing.assert_close(updates[0], torch.cat(updates[1:]), rtol=1e-4, atol=1e-5)
    # Moonlight's rule: an update as large as AdamW's usual one.
    assert updates[1].square().mean().sqrt().item() == pytest.approx(0.2, rel=0.3)


def test_muon_gives_hidden_matrices_momentum_and_the_rest_adamw() -> None:
    config = BertConfig(layers=1, hidden=8, heads=2, intermediate=12, max_positions=8)
    network = BertForPretraining(config, 20)
    optimizer = make_optimizer(network, OptimConfig(kind="muon"), BERT.stacked_matrices)
    names = {parameter: name for name, parameter in network.named_parameters()}
    stacked = {
        names[parameter]: (group["stacked"], group["weight_decay"])
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    assert stacked.keys() == set(names.values())
    layer = "bert.layers.0."
    assert {name: number for name, (number, _) in stacked.items() if number} == {
        layer + "attention.qkv.weight": 3,
        layer + "attention.output.weight": 1,
        layer + "feedforward.input.weight": 1,
        layer + "feedforward.output.weight": 1,
    }
    assert stacked["bert.embeddings.tokens.weight"] == (0, 0.01)
    assert stacked[layer + "attention_norm.weight"] == (0, 0.0)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (Lamb, {"betas": BETAS, "eps": 1e-6}),
        (StableAdamW, {"betas": BETAS, "eps": 1e-6}),
        (Muon, {"betas": BETAS, "eps": 1e-6, "momentum": 0.9}),
    ],
)
def test_found_inf_leaves_weights_and_state_bit_equal(make: Any, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    parameter = torch.nn.Parameter(torch.randn(4, 4))
    optimizer = make([{"params": [parameter], "weight_decay": 0.1}], lr=0.2, **options)
    parameter.grad = torch.randn(4, 4)
    optimizer.step()
    before = [parameter.clone(), *(value.clone() for value in optimizer.state[parameter].values())]
    optimizer.found_inf = torch.tensor(1.0)
    parameter.grad = torch.full((4, 4), torch.nan)
    optimizer.step()
    after = [parameter, *optimizer.state[parameter].values()]
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True))


@pytest.mark.parametrize("kind", ["lamb", "stable_adamw", "muon"])
def test_zero_refuses_optimizers_that_need_whole_tensors(kind: str) -> None:
    with pytest.raises(UsageError, match=rf"optim\.kind={kind}: .*trainer\.strategy=zero1"):
        OptimConfig(kind=kind).check_strategy("zero1")
    OptimConfig(kind=kind).check_strategy("ddp")


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("nadam", "must be a dotted path"),
        ("torch.optim.Nadam", "cannot be imported"),
        ("torch.nn.Linear", "is no subclass of torch.optim.Optimizer"),
        ("torch.optim.NAdam", "unexpected keyword argument 'bêta'"),
    ],
)
def test_an_own_optimizer_that_cannot_be_made(path: str, says: str) -> None:
    config = OptimConfig(kind="own", path=path, options={"bêta": 1})
    with pytest.raises(UsageError, match=rf"optim\.path={path}.*{says}"):
        make_optimizer(torch.nn.Linear(2, 2), config, lambda name: 0)


def test_own_needs_a_path_and_a_path_needs_own() -> None:
    for config in (OptimConfig(kind="own"), OptimConfig(path="torch.optim.NAdam")):
        with pytest.raises(UsageError, match=r"set optim\.kind=own together with"):
            config.check()


def test_an_own_optimizer_is_a_setting_by_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "my_optimizers.py"
    module.write_text("raise RuntimeError('planning imports nothing')\n")
    config = Config(model=BertConfig(), optim=OptimConfig(kind="own", path="my_optimizers.Mine"))
    before = Pretrain().keys(config)
    module.write_text("raise RuntimeError('changed')\n")
    after = Pretrain().keys(config)
    assert before["optim"] != after["optim"]
    assert before["optim"]["path"] == "my_optimizers.Mine"
    missing = replace(config, optim=OptimConfig(kind="own", path="no_such_module.Mine"))
    with pytest.raises(UsageError, match=r"optim\.path=no_such_module\.Mine: there is no Python"):
        Pretrain().keys(missing)
