"""The graph of an experiment: stage instances as nodes, with their inputs and fingerprints.

Stages are passed in. Each stage states its own inputs and special rules (see `stage`).
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from data_prep.errors import SesameError, UsageError
from pipeline.config.schema import Config, InstanceConfig
from pipeline.store.content import Checksums
from pipeline.store.outputs import Store, canonical, fingerprint
from pipeline.workflow.stage import Input, Instance, Node, Request, Stage, UserFiles, as_input

Stages = Mapping[str, Stage]  # by name, in the order of work
Formats = Mapping[str, int]  # format version by stage


class Graph:
    """Stage instances in an order in which they can be executed.

    Instances with equal fingerprints share one node.
    """

    def __init__(self, store: Store, stages: Stages, formats: Formats | None = None):
        self.store = store
        self.stages = stages
        self._formats = formats  # None: chosen for each config
        self._chosen: dict[str, Formats] = {}  # by config
        self.nodes: dict[str, Node] = {}  # by the output's reference, inputs before users
        self.checksums = Checksums(store.root)
        self.pretrainings: dict[str, dict[str, Config]] = {}  # by instance name, then reference
        self._files: dict[str, UserFiles] = {}  # by stage and the sections that name them

    def add(self, stage: str, config: Config, label: str = "") -> Node:
        """Add an instance and, before it, every instance whose output it needs."""
        if self._formats is None:
            return self._beside(self._choose_formats(config), self.nodes).add(stage, config, label)
        requests = self.stages[stage].inputs(config)
        inputs = {role: as_input(self.request(request)) for role, request in requests.items()}
        return self.place(stage, config, label, inputs)

    def _choose_formats(self, config: Config) -> Formats:
        """Return the formats of the outputs that a config needs: the current ones, as a rule.

        A pretraining that was begun with inputs of earlier formats goes on with them, if all of
        them are finished; so do the outputs that belong to it.
        """
        current, *earlier = generations(self.stages)
        keepers = [name for name, maker in self.stages.items() if maker.keeps_inputs]
        if not any(True for name in keepers for _ in self.store.outputs(name)):
            return current
        key = canonical(asdict(config))
        if key not in self._chosen:
            begun = [
                formats
                for formats in (current, *earlier)
                if any(self._is_begun(name, config, formats) for name in keepers)
            ]
            self._chosen[key] = begun[0] if begun else current
        return self._chosen[key]

    def _is_begun(self, stage: str, config: Config, formats: Formats) -> bool:
        """Return True if this output was begun with inputs of these formats and they are finished.

        False for a config that the stage refuses.
        """
        graph = self._beside(formats, {})
        try:
            node = graph.add(stage, config)
        except SesameError:
            return False
        others = [each for each in graph.nodes.values() if each is not node]
        is_begun = node.output.is_done or node.output.is_begun
        return is_begun and all(each.output.is_done for each in others)

    def _beside(self, formats: Formats, nodes: dict[str, Node]) -> "Graph":
        """Return a graph with these formats and nodes; what was read of user files is shared."""
        graph = Graph(self.store, self.stages, formats)
        graph.nodes, graph.pretrainings = nodes, self.pretrainings
        graph.checksums, graph._files = self.checksums, self._files
        return graph

    def request(self, request: Request) -> Node | Input:
        """Return the node that makes a requested output, or the input that already holds it."""
        return self.stages[request.stage].resolve(self, request)

    def place(self, stage: str, config: Config, label: str, inputs: dict[str, Input]) -> Node:
        """Add an instance with known inputs; return the existing node if there is an equal one."""
        maker = self.stages[stage]
        files = self._find_files(maker, config)
        request = {
            "stage": stage,
            "format": maker.format if self._formats is None else self._formats[stage],
            "config": maker.keys(config),
            "upstream": {role: item.reference for role, item in inputs.items()},
            "files_read": self.checksums.describe(files.named),
        }
        output = self.store.output(stage, fingerprint(request))
        earlier = request | {"config": maker.earlier_keys(config)}
        if earlier != request and not (output.is_done or output.is_begun):
            made = self.store.output(stage, fingerprint(earlier))
            if made.is_done or made.is_begun:
                request, output = earlier, made
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


def generations(stages: Stages) -> list[Formats]:
    """Return the formats of all stages: now, before the last change, before the one before, …"""
    earlier = max((len(maker.formats_before) for maker in stages.values()), default=0)
    histories = {name: (maker.format, *maker.formats_before) for name, maker in stages.items()}
    return [
        {name: history[min(age, len(history) - 1)] for name, history in histories.items()}
        for age in range(earlier + 1)
    ]


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
