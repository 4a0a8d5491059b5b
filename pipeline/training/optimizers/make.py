"""Makes the optimizer that `optim.kind` names."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from data_prep.dotted import load
from data_prep.errors import UsageError
from pipeline.training.config import OptimConfig
from pipeline.training.optimizers.adagrad import Adagrad
from pipeline.training.optimizers.lamb import Lamb
from pipeline.training.optimizers.muon import Muon
from pipeline.training.optimizers.stable_adamw import StableAdamW

Groups = list[dict[str, Any]]
# By parameter name, the number of matrices stacked in a hidden matrix; 0: it is none.
Stacked = Callable[[str], int]


def make_optimizer(
    network: nn.Module, config: OptimConfig, stacked: Stacked
) -> torch.optim.Optimizer:
    """Return the optimizer of a network. Its learning rate must be set before each step."""
    groups = decay_groups(network, config.weight_decay)
    betas = (config.beta1, config.beta2)
    match config.kind:
        case "adagrad":
            return Adagrad(groups, initial_accumulator=config.initial_accumulator, eps=config.eps)
        case "lamb":
            return Lamb(groups, betas=betas, eps=config.eps)
        case "stable_adamw":
            return StableAdamW(groups, betas=betas, eps=config.eps)
        case "muon":
            groups = _by_stack(network, config.weight_decay, stacked)
            return Muon(groups, momentum=config.momentum, betas=betas, eps=config.eps)
        case "own":
            return _own(groups, config)
        case _:
            return torch.optim.AdamW(groups, lr=0.0, betas=betas, eps=config.eps, fused=True)


def decay_groups(network: nn.Module, weight_decay: float) -> Groups:
    """Return parameter groups: matrices with weight decay; biases and norms (vectors) without."""
    matrices = [p for p in network.parameters() if p.requires_grad and p.ndim > 1]
    vectors = [p for p in network.parameters() if p.requires_grad and p.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def _by_stack(network: nn.Module, weight_decay: float, stacked: Stacked) -> Groups:
    """Return parameter groups as `decay_groups` does, with hidden matrices in groups by stack."""
    hidden: dict[int, list[Tensor]] = {}
    for name, parameter in network.named_parameters():
        if parameter.requires_grad and parameter.ndim == 2 and stacked(name):
            hidden.setdefault(stacked(name), []).append(parameter)
    taken = {id(part) for parts in hidden.values() for part in parts}
    groups: Groups = [
        {"params": parts, "weight_decay": weight_decay, "stacked": number}
        for number, parts in sorted(hidden.items())
    ]
    for group in decay_groups(network, weight_decay):
        rest = [part for part in group["params"] if id(part) not in taken]
        groups += [group | {"params": rest}] if rest else []
    return groups


def _own(groups: Groups, config: OptimConfig) -> torch.optim.Optimizer:
    """Construct the class `optim.path` with `optim.lr` and `optim.options`."""
    assert config.path is not None, "see OptimConfig.check"
    found = load("optim.path", config.path)
    if not (isinstance(found, type) and issubclass(found, torch.optim.Optimizer)):
        raise UsageError(f"optim.path={config.path}: is no subclass of torch.optim.Optimizer")
    try:
        return found(groups, lr=config.lr, **config.options)  # type: ignore[call-arg]
    except (TypeError, ValueError) as error:
        raise UsageError(f"optim.path={config.path}, optim.options: {error}") from error
