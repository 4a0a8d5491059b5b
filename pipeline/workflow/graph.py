"""The plan of work as a small directed graph: stage instances, what each reads, fingerprints.

Stages are handed in; each says itself what it reads and what is special about it (see `stage`).
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from data_prep.errors import UsageError
from pipeline.config.schema import Config, InstanceConfig
from pipeline.store.content import Checksums
from pipeline.store.outputs import Store, fingerprint
from pipeline.workflow.stage import Input, Instance, Node, Request, Stage, as_input

Stages = Mapping[str, Stage]  # by name, in the order of work


class Graph:
    """Stage instances in an order in which they can be done; equal ones are one node."""

    def __init__(self, store: Store, stages: Stages):
        self.store = store
        self.stages = stages
        self.nodes: dict[str, Node] = {}
        self.checksums = Checksums(store.root)
        self.pretrainings: dict[str, dict[str, Config]] = {}  # by instance name and reference

    def add(self, stage: str, config: Config, label: str = "") -> Node:
        """Add an instance and everything it needs."""
        requests = self.stages[stage].inputs(config)
        inputs = {role: as_input(self.request(request)) for role, request in requests.items()}
        return self.place(stage, config, label, inputs)

    def request(self, request: Request) -> Node | Input:
        """What makes or holds a requested output."""
        return self.stages[request.stage].resolve(self, request)

    def place(self, stage: str, config: Config, label: str, inputs: dict[str, Input]) -> Node:
        """Add an instance whose inputs are known; equal ones are one node."""
        maker = self.stages[stage]
        request = {
            "stage": stage,
            "format": maker.format,
            "config": maker.keys(config),
            "upstream": {role: item.reference for role, item in inputs.items()},
            "files_read": self.checksums.describe(maker.files(config)),
        }
        output = self.store.output(stage, fingerprint(request))
        if output.reference not in self.nodes:
            self.nodes[output.reference] = Node(maker, label, config, inputs, request, output)
        return self.nodes[output.reference]


def experiment_graph(
    store: Store, stages: Stages, config: Config, recompose: Callable[[list[str]], Config]
) -> Graph:
    """Everything the experiment names: each stage once, or its named instances.

    `recompose` gives the configuration with further overrides.
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
    """The overrides of every combination of an instance's sweep."""
    axes = [
        [f"{key}={_written(value)}" for value in (values if isinstance(values, list) else [values])]
        for key, values in instance.sweep.items()
    ]
    for combination in itertools.product(*axes):
        yield [*instance.set, *combination]


def _written(value: Any) -> str:
    """A value of a recipe as an override has it: nothing is null there, not None."""
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_written(item)}' for key, item in value.items())}}}"
    return str(value)
