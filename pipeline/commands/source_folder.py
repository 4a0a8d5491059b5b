"""The folder that `model=` or `encoder=` names, for commands that take either."""

from dataclasses import replace
from pathlib import Path

from data_prep.errors import UsageError
from pipeline.commands.arguments import Arguments
from pipeline.commands.store import open_store
from pipeline.config.compose import compose_config
from pipeline.stages.prepare_encoder import prepare_encoder
from pipeline.store.models import find_model


def named_source(model: str, overrides: list[str]) -> str:
    """Return the reference that was given. Raises UsageError for none or both."""
    encoders = [word.removeprefix("encoder=") for word in overrides if word.startswith("encoder=")]
    if bool(model) == bool(encoders):
        raise UsageError("name model=<run>/<task> or encoder=<run or folder>")
    return model or encoders[-1]


def source_folder(model: str, arguments: Arguments, overrides: list[str]) -> Path:
    """Return the folder of the model, or of the encoder, which is exported if it is not yet."""
    if model:
        store = open_store(replace(arguments, overrides=overrides))
        return find_model(f"model={model}", model, store)
    config = compose_config(overrides)
    folders = list(prepare_encoder(arguments.command, config, overrides).values())
    if len(folders) > 1:
        raise UsageError(f"encoder={config.encoder}: {arguments.command} takes one encoder")
    return folders[0]
