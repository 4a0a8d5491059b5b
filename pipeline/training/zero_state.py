"""Reads and writes the state that DeepSpeed's ZeRO divides among ranks, by parameter.

Stages 1 and 2 divide one flat tensor of all parameters: a rank holds the moments of a *fragment* of
a parameter, or of none of it. Stage 3 divides each flattened parameter into equal *slices*, the
last one padded with zeros.
"""

from collections.abc import Sequence
from typing import Any, cast

from torch import Tensor, nn

from pipeline.training.restoring import SavedParameters


def full_state(parameter: nn.Parameter, moments: Sequence[str]) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the whole fp32 weight and moments, on the device of every rank. Collective."""
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

    weight: Tensor = safe_get_full_fp32_param(parameter)
    return weight, {key: safe_get_full_optimizer_state(parameter, key) for key in moments}


def is_whole(parameter: nn.Parameter, stage: int) -> bool:
    """Return True if every rank holds all of the weight: stage 3 divides only larger ones."""
    return stage < 3 or parameter.data.numel() == cast(Any, parameter).ds_numel


def load_fragment(name: str, parameter: nn.Parameter, saved: SavedParameters) -> None:
    """Load this rank's fragment in stages 1 and 2, in place; `parameter` has its weight already."""
    fragment = cast(Any, parameter)._hp_mapping
    if fragment is None:
        return  # other ranks update this parameter
    place = fragment.lp_fragment_address
    weight = parameter.data.flatten().narrow(0, place.start, place.numel)
    fragment.get_hp_fragment().copy_(weight)
    for key in saved.moments(name):
        moment = saved.flat(f"{key}/{name}", place.start, place.numel)
        fragment.get_hp_fragment(key).copy_(moment)


def load_slice(name: str, parameter: nn.Parameter, saved: SavedParameters, rank: int) -> None:
    """Load this rank's slice of weight and moments in stage 3, in place."""
    from deepspeed.utils import safe_set_local_fp32_param, safe_set_local_optimizer_state

    own = cast(Any, parameter).ds_tensor.data
    own.copy_(saved.flat(name, rank * own.numel(), own.numel()))
    # DeepSpeed's setters of whole tensors overrun if a size is no multiple of the ranks.
    safe_set_local_fp32_param(parameter, own)
    for key in saved.moments(name):
        moment = saved.flat(f"{key}/{name}", rank * own.numel(), own.numel()).to(own.device)
        safe_set_local_optimizer_state(parameter, moment, key)
