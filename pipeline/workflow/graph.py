"""The plan of work as a small directed graph: stage instances, what each reads, fingerprints."""

import importlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from data_prep.errors import UsageError
from data_prep.fields import result_keys
from pipeline.config.schema import Config, InstanceConfig
from pipeline.store.content import Checksums
from pipeline.store.outputs import Output, Store, fingerprint
from pipeline.store.references import Folder, Stored, resolve
from pipeline.workflow.stage import Request

STAGES = (
    "shard", "tokenizer", "vectors", "examples", "pretrain", "export", "finetune", "layers",
    "report",
)  # fmt: skip


def stage_module(stage: str) -> ModuleType:
    """The module of a stage; see `pipeline.workflow.stage` for what it has."""
    return importlib.import_module(f"pipeline.stages.{stage}")


@dataclass(frozen=True)
class Input:
    """Something a stage reads: another output, or a folder of the user's."""

    reference: str
    path: Path
    may_go_on: bool = False  # what is read of it is there for good, though it is not finished


@dataclass(frozen=True, eq=False)
class Node:
    """One stage instance: its config, what it reads, and where its output is or will be."""

    stage: str
    label: str
    config: Config
    inputs: dict[str, Input]
    request: dict[str, Any]
    output: Output


class Graph:
    """Stage instances in an order in which they can be done; equal ones are one node."""

    def __init__(self, store: Store):
        self.store = store
        self.nodes: dict[str, Node] = {}
        self.checksums = Checksums(store.root)
        self._pretrainings: dict[str, dict[str, Config]] = {}  # by instance name and reference

    def add(self, stage: str, config: Config, label: str = "") -> Node:
        """Add an instance and everything it needs."""
        module = stage_module(stage)
        return self._place(stage, config, label, self._inputs(module, config))

    def add_pretraining(self, name: str, config: Config, swept: Sequence[str] = ()) -> Node:
        """Add a pretraining that `encoder=<name>` may refer to; `swept` tells points apart."""
        label = ", ".join([*([] if name == "pretrain" else [name]), *swept])
        node = self.add("pretrain", config, label)
        self._pretrainings.setdefault(name, {})[node.output.reference] = config
        return node

    def add_report(self, config: Config, reported: dict[str, Input]) -> Node:
        """Add the page about the given outputs, named by role.

        It shows text only if that is allowed for every instance here: one may read its own task.
        """
        shared = bool(config.share.text) and all(n.config.share.text for n in self.nodes.values())
        own = replace(config, share=replace(config.share, text=shared))
        return self._place("report", own, "", reported)

    def export(self, config: Config) -> Node | Input:
        """The loadable folder that `config.encoder` refers to."""
        text = config.encoder
        if text is None or text in self._pretrainings:
            reference, own = self._pretraining(text) or ("", config)
            return self._export_own(reference, own, config)
        found = resolve("encoder", text, "pretrain", self.store)
        if isinstance(found, Folder):
            return self._vectors(found, config) or self._folder(found)
        node = self._place(
            "export",
            replace(config, export=replace(config.export, checkpoint=found.checkpoint)),
            text,
            {
                "pretrain": Input(found.output.reference, found.output.path, found.is_step),
                "tokenizer": self._upstream(found, "tokenizer"),
            },
        )
        if (found.output.is_done or found.is_step) and not node.output.is_done:
            stage_module("export").check_finished(found.output.path, found.checkpoint)
        return node

    def export_all(self, config: Config) -> None:
        """Export what `config.encoder` names; without a name, every pretraining of the graph."""
        if config.encoder is not None or not self._pretrainings:
            self.export(config)
            return
        for points in self._pretrainings.values():
            for reference, own in points.items():
                self._export_own(reference, own, config)

    def _export_own(self, reference: str, own: Config, config: Config) -> Node:
        """The export of a pretraining in this graph, in the way that `config` asks for."""
        label = self.nodes[reference].label if reference else ""
        return self.add("export", replace(own, encoder=None, export=config.export), label)

    def _pretraining(self, name: str | None) -> tuple[str, Config] | None:
        """Reference and config of the pretraining here that `encoder=<name>` means.

        Without a name the only one is meant; None where the graph has none.
        """
        named = self._pretrainings if name is None else {name: self._pretrainings[name]}
        meant = {reference: own for points in named.values() for reference, own in points.items()}
        if len(meant) > 1 and len(named) > 1:
            raise UsageError(
                f"encoder: this experiment has several pretrainings ({', '.join(named)}); name "
                f"one, such as encoder={next(iter(named))}"
            )
        if len(meant) > 1:
            [only] = named
            raise UsageError(
                f"encoder={only}: is a sweep of {len(meant)} pretrainings; give each an instance "
                "of its own name"
            )
        return next(iter(meant.items()), None)

    def reported(self) -> dict[str, Input]:
        """Everything in the graph by role, for a report."""
        roles: dict[str, Input] = {}
        for node in self.nodes.values():
            if node.stage == "report":
                continue
            role = f"{node.stage}/{node.label}" if node.label else node.stage
            if role in roles:  # such as the examples of two phases
                role = f"{role}/{node.output.fingerprint[:8]}"
            roles[role] = as_input(node)
        return roles

    def tokenizer(self, config: Config) -> Node | Input:
        """The vocabulary: trained here, brought by the user, or that of the model gone on from."""
        for key, text, stage in (
            ("tokenizer.source", config.tokenizer.source, "tokenizer"),
            ("init.source", config.init.source, "pretrain"),
        ):
            if text is None:
                continue
            found = resolve(key, text, stage, self.store)
            if isinstance(found, Folder):
                from data_prep.tokenizers.sources import has_vocabulary

                if key == "init.source" and not has_vocabulary(found.path):
                    continue  # such as a published ELMo, which reads characters
                own = replace(config.tokenizer, source=str(found.path.resolve()))
                return self.add("tokenizer", replace(config, tokenizer=own))
            if stage == "pretrain":
                return self._upstream(found, "tokenizer")
            return Input(found.output.reference, found.output.path)
        return self.add("tokenizer", config)

    def _inputs(self, module: ModuleType, config: Config) -> dict[str, Input]:
        requests: dict[str, Request] = module.inputs(config)
        return {role: as_input(self.request(request)) for role, request in requests.items()}

    def request(self, request: Request) -> Node | Input:
        """What makes or holds a requested output."""
        special = {"export": self.export, "tokenizer": self.tokenizer}.get(request.stage)
        if special:
            return special(request.config)
        return self.add(request.stage, request.config, request.label)

    def _place(self, stage: str, config: Config, label: str, inputs: dict[str, Input]) -> Node:
        module = stage_module(stage)
        files: Callable[[Config], list[tuple[str, Path]]] | None = getattr(module, "files", None)
        keys: Callable[[Config], dict[str, Any]] | None = getattr(module, "keys", None)
        request = {
            "stage": stage,
            "format": module.FORMAT,
            "config": keys(config) if keys else section_keys(config, module.SECTIONS),
            "upstream": {role: item.reference for role, item in inputs.items()},
            "files_read": self.checksums.describe(files(config)) if files else {},
        }
        output = self.store.output(stage, fingerprint(request))
        if output.reference not in self.nodes:
            self.nodes[output.reference] = Node(stage, label, config, inputs, request, output)
        return self.nodes[output.reference]

    def _vectors(self, folder: Folder, config: Config) -> Node | None:
        """The table of the word vectors in a file, or in a folder of a matrix and its words."""
        if folder.path.is_dir() and not any(folder.path.glob("*.parquet")):
            return None
        own = replace(config.vectors, source=str(folder.path.resolve()))
        return self.add("vectors", replace(config, vectors=own))

    def _folder(self, folder: Folder) -> Input:
        files = sorted(path for path in folder.path.rglob("*") if path.is_file())
        described = self.checksums.describe(
            (str(path.relative_to(folder.path)), path) for path in files
        )
        return Input(f"folder/{fingerprint(described)}", folder.path.resolve())

    def _upstream(self, found: Stored, role: str) -> Input:
        output = self.store.from_reference(found.output.request()["upstream"][role])
        return Input(output.reference, output.path)


def as_input(item: Node | Input) -> Input:
    """A node as what another stage reads."""
    return item if isinstance(item, Input) else Input(item.output.reference, item.output.path)


def section_keys(config: Config, sections: tuple[str, ...]) -> dict[str, Any]:
    """The result keys of the named config sections."""
    return {section: result_keys(getattr(config, section)) for section in sections}


def experiment_graph(
    store: Store, config: Config, recompose: Callable[[list[str]], Config]
) -> Graph:
    """Everything the experiment names: each stage once, or its named instances."""
    graph = Graph(store)
    for stage in config.stages:
        if stage not in STAGES:
            raise UsageError(f"stages: {stage} is no stage; choose from {', '.join(STAGES)}")
    for stage in STAGES:
        if stage not in config.stages:
            continue
        instances = {n: i for n, i in config.instances.items() if i.stage == stage}
        for name, instance in (instances or {stage: InstanceConfig(stage)}).items():
            for point in _points(instance):
                own = recompose(point) if point else config
                _add_instance(graph, stage, name, own, point, point[len(instance.set) :])
    return graph


def _add_instance(
    graph: Graph, stage: str, name: str, config: Config, point: list[str], swept: list[str]
) -> None:
    if stage == "pretrain":
        graph.add_pretraining(name, config, swept)
    elif stage == "export":
        graph.export_all(config)
    elif stage == "tokenizer":
        graph.tokenizer(config)
    elif stage == "examples":  # those that pretraining reads, a set a length
        for request in stage_module("pretrain").example_sets(config):
            graph.add(stage, request.config, ", ".join(point))
    elif stage == "report":
        graph.add_report(config, graph.reported())
    else:
        graph.add(stage, config, ", ".join(point))


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
