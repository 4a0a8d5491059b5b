"""Checks that the configured model has the architecture of `init.source`; without torch."""

import json
import shlex
from dataclasses import fields
from pathlib import Path

from data_prep.errors import UsageError
from pipeline.models.allennlp_options import find_pair, read_options
from pipeline.models.architectures import read_stated
from pipeline.models.config import KINDS, ModelConfig, setting
from pipeline.store.outputs import Store
from pipeline.store.references import Folder, resolve

# Options that may differ from those of `init.source`: none of them changes a weight's shape.
FREE_TO_CHANGE = ("dropout", "attention_dropout", "init_std", "window", "samples", "forget_every")


def check_source(reference: str, model: ModelConfig, store: Store) -> None:
    """Raise `UsageError` if `init.source` has another architecture; called before any work."""
    found = resolve("init.source", reference, "pretrain", store)
    if isinstance(found, Folder):
        check_architecture(model, _stated(found.path))
        return
    stated = found.output.path / "config.json"
    if stated.exists():  # otherwise that pretraining has not started; the graph reports it
        check_architecture(model, read_model(stated))


def _stated(folder: Path) -> ModelConfig:
    """Read the model config of a folder outside the store (AllenNLP pair or Hugging Face)."""
    pair = find_pair(folder)
    return read_options(pair[0]) if pair else read_stated(folder).config


def read_model(stated: Path) -> ModelConfig:
    """Read the model config from the config.json of a pretraining output."""
    values = json.loads(stated.read_text())["model"]
    return KINDS[values["kind"]](**values)


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
        if item.name not in FREE_TO_CHANGE
        and getattr(theirs, item.name) != getattr(ours, item.name)
    }
    if differing:
        given = ", ".join(setting(name, getattr(ours, name)) for name in differing)
        wanted = shlex.join(setting(name, value) for name, value in differing.items())
        raise UsageError(f"{given}: the model of init.source is another; set {wanted}")
