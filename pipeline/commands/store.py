"""The store that a command works on."""

from pathlib import Path

from pipeline.commands.arguments import Arguments
from pipeline.config.compose import compose_config
from pipeline.store.outputs import Store


def open_store(arguments: Arguments) -> Store:
    """Return the store that the overrides of a command name."""
    return Store(Path(compose_config(arguments.overrides).paths.store))
