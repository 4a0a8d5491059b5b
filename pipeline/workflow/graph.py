"""The graph of an experiment: stage instances as nodes, with their inputs and fingerprints.

Stages are passed in. Each stage states its own inputs and special rules (see `stage`).
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from data_prep.errors import UsageError
from pipeline.config.schema import Config, InstanceConfig
from pipeline.store.content import Checksums
from pipeline.store.outputs import Store, canonical, fingerprint
from pipeline.workflow.stage import Input, Instance, Node, Request, Stage, UserFiles, as_input

Stages = Mapping[str, Stage]  # by name, in the order of work


class Graph:
    """Stage instances in an order in which they can be executed.

    Instances with equal fingerprints share one node.
    """

    def __init__(self, store: Store, stages: Stages):
        self.store = store
        self.stages = stages
        self.nodes: dict[str, Node] = {}  # by the output's reference, inputs before users
        self.checksums = Checksums(store.root)
        self.pretrainings: dict[str, dict[str, Config]] = {}  # by instance name, then reference
        self._files: dict[str, UserFiles] = {}  # by stage and the sections that name them

    def add(self, stage: str, config: Config, label: str = "") -> Node:
        """Add an instance and, before it, every instance whose output it needs."""
        requests = self.stages[stage].inputs(config)
        inputs = {role: as_input(self.request(request)) for role, request in requests.items()}
        return self.place(stage, config, label, inputs)

    def request(self, request: Request) -> Node | Input:
        """Return the node that makes a requested output, or the input that already holds it."""
        return self.stages[request.stage].resolve(self, request)

    def place(self, stage: str, config: Config, label: str, inputs: dict[str, Input]) -> Node:
        """Add an instance with known inputs; return the existing node if there is an equal one."""
        maker = self.stages[stage]
        files = self._find_files(maker, config)
        request = {
            "stage": stage,
            "format": maker.format,
            "config": maker.keys(config),
            "upstream": {role: item.reference for role, item in inputs.items()},
            "files_read": self.checksums.describe(files.named),
        }
        output = self.store.output(stage, fingerprint(request))
        if output.reference not in self.nodes:
            node = Node(maker, label, config, inputs, request, output, files)
            self.nodes[output.reference] = node
        return self.nodes[output.reference]

    def _find_files(self, maker: Stage, config: Config) -> UserFiles:
        """Return the user's files of a stage; search for them only once per command."""
        sections = {name: asdict(getattr(config, name)) for name in maker.sections}
        key = canonical([maker.name, sections])
        if key not in self._files:
            self._files[key] = maker.files(config)
        return self._files[key]


def experiment_graph(
    store: Store, stages: Stages, config: Config, recompose: Callable[[list[str]], Config]
) -> Graph:
    """Build the graph of an experiment: each stage once, or once per instance and sweep point.

    `recompose` returns the config with further overrides. Raises `UsageError` for an unknown stage.
    """
    graph = Graph(store, stages)
    for name in config.stages:
        if name not in stages:
            raise UsageError(f"stages: {name} is no stage; choose from {', '.join(stages)}")
    for name, stage in stages.items():
        if name not in config.stages:
            continue
        instances = {n: i for n, i in config.instances.items() if i.stage == name}
        for use, instance in (instances or {name: InstanceConfig(name)}).items():
            for point in _points(instance):
                own = recompose(point) if point else config
                swept = point[len(instance.set) :]
                stage.add_instance(graph, Instance(use, own, point, swept))
    return graph


def _points(instance: InstanceConfig) -> Iterator[list[str]]:
    """Yield the overrides of an instance, once per combination of its sweep's values."""
    axes = [
        [f"{key}={_written(value)}" for value in (values if isinstance(values, list) else [values])]
        for key, values in instance.sweep.items()
    ]
    for combination in itertools.product(*axes):
        yield [*instance.set, *combination]


def _written(value: Any) -> str:
    """Format a value in the syntax of overrides, where None is `null`."""
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_written(item)}' for key, item in value.items())}}}"
    return str(value)
