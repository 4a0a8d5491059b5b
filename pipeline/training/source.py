"""The model of `init.source`: whether the configured one is of its architecture; torch-free."""

import json
from dataclasses import fields
from pathlib import Path

from data_prep.errors import UsageError
from pipeline.models.architectures import read_stated
from pipeline.models.config import KINDS, BertConfig, ModelConfig, setting
from pipeline.references import Folder, resolve
from pipeline.store import Store

# When going on from a model.
FREE_TO_CHANGE = ("dropout", "attention_dropout", "init_std", "window", "samples")


def check_source(reference: str, model: ModelConfig, store: Store) -> None:
    """Refuse, before any work, to go on from a model of another architecture."""
    found = resolve("init.source", reference, "pretrain", store)
    if isinstance(found, Folder):
        if isinstance(model, BertConfig):  # an ELMo's folder tells when it is loaded
            check_architecture(model, read_stated(found.path).config)
        return
    stated = found.output.path / "config.json"
    if stated.exists():  # else it has never begun, which the graph will say
        check_architecture(model, read_model(stated))


def read_model(stated: Path) -> ModelConfig:
    """The model that a pretraining's config.json describes."""
    values = json.loads(stated.read_text())["model"]
    return KINDS[values["kind"]](**values)


def check_architecture(ours: ModelConfig, theirs: ModelConfig) -> None:
    """Refuse a difference that weights cannot be carried over."""
    if ours.kind != theirs.kind:
        raise UsageError(
            f"model.kind={ours.kind}: the model of init.source is of kind {theirs.kind}; choose "
            "that model= and a recipe for it"
        )
    differing = {
        item.name: getattr(theirs, item.name)
        for item in fields(ours)
        if item.name not in FREE_TO_CHANGE
        and getattr(theirs, item.name) != getattr(ours, item.name)
    }
    if differing:
        given = ", ".join(setting(name, getattr(ours, name)) for name in differing)
        wanted = " ".join(setting(name, value) for name, value in differing.items())
        raise UsageError(f"{given}: the model of init.source is another; set {wanted}")
