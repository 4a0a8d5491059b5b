"""Inputs of the stages that use an encoder: one output per encoder, by role."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_prep.fields import result_keys
from pipeline.config.schema import FLOORS, RANDOM, VECTORS, Config
from pipeline.models.registry import family_of
from pipeline.workflow.stage import Request

if TYPE_CHECKING:
    from pipeline.encoders import Encoder


def encoder_requests(config: Config) -> dict[str, Request]:
    """Return one request per encoder, by role: an export, word vectors, or for a random encoder its
    tokenizer. Baselines (`FLOORS`) request nothing."""
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
    """Return fingerprint keys of encoders that no input identifies.

    A random encoder is identified by its model. A baseline reads no output, so its name must be a
    key; otherwise all baselines would share one fingerprint. The key `pieces` separates tasks over
    words from outputs of an earlier version, which tokenized each word alone instead of the whole
    text. Tasks over whole texts were not affected.
    """
    keys: dict[str, Any] = {}
    if RANDOM in config.encoders:
        unread = family_of(config.model).objective_keys
        model = result_keys(config.model).items()
        keys["model"] = {key: value for key, value in model if key not in unread}
    for name in FLOORS:
        if name in config.encoders:
            keys["encoder"] = {"floor": name}
    if config.task.kind in ("span", "tag") or len(config.encoders) > 1:
        keys["pieces"] = {"of": "whole texts"}
    return keys


def earlier_encoder_keys(config: Config) -> dict[str, Any]:
    """Return `encoder_keys` as earlier versions hashed them: with all options of the model."""
    keys = encoder_keys(config)
    return keys | ({"model": result_keys(config.model)} if "model" in keys else {})


def open_encoder(config: Config, inputs: dict[str, Path], seed: int) -> "Encoder":
    """Load the encoder; several encoders become one that concatenates their vectors."""
    from pipeline.encoders import Concatenation, load_encoder, random_encoder

    members = [
        random_encoder(config.model, path, seed)
        if role.startswith("tokenizer")
        else load_encoder(path)
        for role, path in inputs.items()
    ]
    return members[0] if len(members) == 1 else Concatenation(members)


def encoder_label(config: Config) -> str:
    """Return the encoder's name for tables; for a folder or file without its path."""
    return " + ".join("pretrained" if name is None else Path(name).name for name in config.encoders)
