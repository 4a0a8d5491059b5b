"""Makes the encoder that a command uses: exports a checkpoint, or trains word vectors."""

import os
from dataclasses import replace
from pathlib import Path

from data_prep.errors import UsageError
from pipeline.config.schema import RANDOM, VECTORS, Config, PathsConfig
from pipeline.stages import STAGES
from pipeline.stages.encoder_inputs import encoder_requests
from pipeline.store.outputs import Store
from pipeline.workflow.execute import execute_all, refuse_to_pretrain
from pipeline.workflow.graph import Graph
from pipeline.workflow.stage import as_input


def prepare_encoder(command: str, config: Config, overrides: list[str]) -> dict[str, Path]:
    """Make the outputs that `encoder=` refers to; return their folders by role.

    Never pretrains: raises `UsageError` with the command to run if the encoder is not pretrained.
    """
    graph = Graph(Store(Path(config.paths.store)), STAGES)
    requests = encoder_requests(config)
    if not requests:
        raise UsageError(f"encoder={config.encoder}: has no vectors of words")
    inputs = {role: as_input(graph.request(request)).path for role, request in requests.items()}
    nodes = list(graph.nodes.values())
    refuse_to_pretrain(nodes, command, overrides)
    graph.checksums.save()
    execute_all(nodes)
    return inputs


def prepare_reference(
    encoder: str | Path, store: str | Path | None
) -> tuple[Config, dict[str, Path]]:
    """`prepare_encoder` for the Python interface, from a reference only.

    `store` None uses $SESAME_STORE. Returns the config too. Raises `UsageError` for `random` and
    `vectors`, which need an experiment.
    """
    place = store or os.environ.get("SESAME_STORE", "store")
    config = Config(encoder=str(encoder), paths=PathsConfig(str(place)))
    if config.encoder in (RANDOM, VECTORS):
        raise UsageError(f"encoder={encoder}: needs an experiment; name a run, a folder or a file")
    return config, prepare_encoder("load_encoder", config, [f"encoder={encoder}"])


def each_encoder(config: Config) -> list[Config]:
    """Return one config per encoder in `encoder=`, for commands that compare encoders."""
    return [replace(config, encoder=name) for name in config.encoders]
