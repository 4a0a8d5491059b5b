"""Inputs of the stages that use an encoder: outputs by role, for one encoder or several."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_prep.fields import result_keys
from pipeline.config.schema import FLOORS, RANDOM, VECTORS, Config
from pipeline.workflow.stage import Request

if TYPE_CHECKING:
    from pipeline.encoders import Encoder


def encoder_requests(config: Config) -> dict[str, Request]:
    """An output for each encoder; only a vocabulary where its weights are random."""
    requests = {}
    for number, name in enumerate(config.encoders, start=1):
        suffix = "" if len(config.encoders) == 1 else f"_{number}"
        own = replace(config, encoder=name)
        if name == RANDOM:
            requests[f"tokenizer{suffix}"] = Request("tokenizer", own)
        elif name == VECTORS:
            requests[f"encoder{suffix}"] = Request("vectors", own)
        elif name not in FLOORS:
            requests[f"encoder{suffix}"] = Request("export", own)
    return requests


def encoder_keys(config: Config) -> dict[str, Any]:
    """Result keys of encoders that have no output to tell them apart.

    A random encoder is its model. A floor reads no output at all, so its name must be a key:
    without it all floors would share one fingerprint. `pieces` tells tasks over words from outputs
    made before words had the pieces of their whole text; tasks over whole texts never differed.
    """
    keys: dict[str, Any] = {}
    if RANDOM in config.encoders:
        keys["model"] = result_keys(config.model)
    for name in FLOORS:
        if name in config.encoders:
            keys["encoder"] = {"floor": name}
    if config.task.kind in ("span", "tag") or len(config.encoders) > 1:
        keys["pieces"] = {"of": "whole texts"}
    return keys


def open_encoder(config: Config, inputs: dict[str, Path], seed: int) -> "Encoder":
    """The encoder, or all of them as one."""
    from pipeline.encoders import Concatenation, load_encoder, random_encoder

    members = [
        random_encoder(config.model, path, seed)
        if role.startswith("tokenizer")
        else load_encoder(path)
        for role, path in inputs.items()
    ]
    return members[0] if len(members) == 1 else Concatenation(members)


def encoder_label(config: Config) -> str:
    """What tables call the encoder; of a folder or file only its name."""
    return " + ".join("pretrained" if name is None else Path(name).name for name in config.encoders)
