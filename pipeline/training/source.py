"""Checks that the configured model has the architecture of `init.source`; without torch."""

import json
from pathlib import Path

from pipeline.models.config import ModelConfig
from pipeline.models.registry import check_architecture, family_of_folder, model_config
from pipeline.store.outputs import Store
from pipeline.store.references import Folder, resolve


def check_source(reference: str, model: ModelConfig, store: Store) -> None:
    """Raise `UsageError` if `init.source` has another architecture; called before any work."""
    found = resolve("init.source", reference, "pretrain", store)
    if isinstance(found, Folder):
        check_architecture(model, family_of_folder(found.path).read_config(found.path))
        return
    stated = found.output.path / "config.json"
    if stated.exists():  # otherwise that pretraining has not started; the graph reports it
        check_architecture(model, read_model(stated))


def read_model(stated: Path) -> ModelConfig:
    """Read the model config from the config.json of a pretraining output."""
    return model_config(json.loads(stated.read_text())["model"])
