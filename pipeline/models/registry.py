"""The registered model families, and the checks that hold for all of them. Without torch."""

import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

from data_prep.errors import UsageError
from pipeline.models.bert.family import BERT
from pipeline.models.config import ModelConfig, setting
from pipeline.models.elmo.family import ELMO
from pipeline.models.family import Family

FAMILIES: dict[str, Family[Any]] = {family.name: family for family in (BERT, ELMO)}


def family_of(config: ModelConfig) -> Family[Any]:
    """Return the family of a model config."""
    return FAMILIES[config.kind]


def architecture_of(config: ModelConfig) -> str | None:
    """Return transformers' name of the architecture; None if it has none for this model."""
    return family_of(config).architecture(config)


def family_of_folder(folder: Path) -> Family[Any]:
    """Return the family whose model a folder holds.

    A folder that no family recognises is read as a Hugging Face folder; its reader reports what is
    missing.
    """
    return next((each for each in (ELMO, BERT) if each.recognises(folder)), BERT)


def model_config(values: dict[str, Any]) -> ModelConfig:
    """Convert a model config from JSON to the dataclass of its family."""
    config: ModelConfig = FAMILIES[values["kind"]].config(**values)
    return config


def check_architecture(ours: ModelConfig, theirs: ModelConfig) -> None:
    """Raise `UsageError` if the models differ in a way that keeps weights from being copied."""
    if ours.kind != theirs.kind:
        raise UsageError(
            f"model.kind={ours.kind}: the model of init.source is of kind {theirs.kind}; choose "
            "that model= and a recipe for it"
        )
    differing = {
        item.name: getattr(theirs, item.name)
        for item in fields(ours)
        if item.name not in family_of(ours).free_to_change
        and getattr(theirs, item.name) != getattr(ours, item.name)
    }
    if differing:
        given = ", ".join(setting(name, getattr(ours, name)) for name in differing)
        wanted = shlex.join(setting(name, value) for name, value in differing.items())
        raise UsageError(f"{given}: the model of init.source is another; set {wanted}")
