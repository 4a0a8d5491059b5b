"""The encoder that a command stands on, made ready: exported, or trained where it is vectors."""

from pathlib import Path

from data_prep.errors import UsageError
from pipeline.config import Config
from pipeline.execute import execute_all, refuse_to_pretrain
from pipeline.graph import Graph, as_input
from pipeline.stages.encoder_inputs import encoder_requests
from pipeline.store import Store


def prepare_encoder(command: str, config: Config, overrides: list[str]) -> dict[str, Path]:
    """Make what `encoder=` refers to, pretraining apart; its folders by role."""
    graph = Graph(Store(Path(config.paths.store)))
    requests = encoder_requests(config)
    if not requests:
        raise UsageError(f"encoder={config.encoder}: has no vectors of words")
    inputs = {role: as_input(graph.request(request)).path for role, request in requests.items()}
    nodes = list(graph.nodes.values())
    refuse_to_pretrain(nodes, command, overrides)
    graph.checksums.save()
    execute_all(nodes)
    return inputs
