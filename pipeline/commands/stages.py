"""`sesame run`, `plan`, `path` and the stages: build the graph, print the plan, execute it."""

import shlex
from dataclasses import replace
from pathlib import Path

from data_prep.errors import UsageError
from data_prep.passes import ArraySlice
from data_prep.progress import console
from pipeline.commands.arguments import Arguments, take_own
from pipeline.commands.plan_sweep import plan_sweep
from pipeline.commands.source_folder import source_folder
from pipeline.commands.sweep import Do, at_once, run_sweep
from pipeline.config.compose import compose_config
from pipeline.config.schema import Config
from pipeline.stages import STAGES
from pipeline.stages.model import add_models
from pipeline.stages.report import Report, add_report, reported
from pipeline.store.models import model_reference
from pipeline.store.outputs import Store
from pipeline.store.runs import Entry, Runs
from pipeline.tasks.summary import scores_table
from pipeline.workflow.execute import execute_all, make_share, refuse_to_pretrain
from pipeline.workflow.graph import Graph, experiment_graph
from pipeline.workflow.plan import as_table, plan
from pipeline.workflow.stage import Input, Node, ReportValue, Request, as_input, no_report

ENCODER_USERS = ("export", "finetune", "layers", "report")
NEXT = (  # printed at the end of a run
    "finished: sesame list shows this run as {name}; the page about it is below, for a browser\n"
    "your own text: sesame run experiment=bert_mini name=mine corpus.paths=<files or folders>"
)


def stage(arguments: Arguments) -> None:
    """Make one stage of the configuration, and the missing data stages before it."""
    _dispatch(arguments, _stage)


def run(arguments: Arguments) -> None:
    """Make everything the experiment names."""
    _dispatch(arguments, _run)


def show_plan(arguments: Arguments) -> None:
    """Print what `run` would do; make nothing. With -m, for all points of a sweep."""
    arguments.refuse_words()
    if "-m" in arguments.options:
        plan_sweep(arguments, experiment)
        return
    graph = experiment(compose_config(arguments.overrides), arguments.overrides)
    console.print(as_table(plan(list(graph.nodes.values()), graph.store)))


def path(arguments: Arguments) -> None:
    """Print where a stage's output is or would be, or where a kept model is."""
    if len(arguments.words) != 1 or arguments.words[0] not in STAGES:
        raise UsageError(f"path: name one stage of {', '.join(STAGES)}")
    own, overrides = take_own(arguments.overrides, {"model": ""})
    if arguments.words == ["model"] and own["model"]:
        print(source_folder(own["model"], arguments, overrides))
        return
    config = compose_config(arguments.overrides)
    _, target = stage_graph(arguments.words[0], config, arguments.overrides)
    print(target.output.path)


def _dispatch(arguments: Arguments, do: Do) -> None:
    """Compose the configuration and call `do`; with -m, once per point of a sweep."""
    arguments.refuse_words()
    if "-m" in arguments.options:
        run_sweep(arguments, do, stage_graph)
    else:
        do(arguments, compose_config(arguments.overrides), no_report)


def _stage(arguments: Arguments, config: Config, report: ReportValue) -> list[Node]:
    _refuse_unused(arguments)
    graph, target = stage_graph(arguments.command, config, arguments.overrides)
    nodes = [replace(n, report=report) if n is target else n for n in graph.nodes.values()]
    target = nodes[list(graph.nodes).index(target.output.reference)]
    if arguments.command != "pretrain":
        refuse_to_pretrain(nodes, arguments.command, arguments.overrides)
    share = arguments.options.get("--share")
    asked = ArraySlice.parse(share) if share is not None else None
    again = _again(arguments, [each for each in nodes if each in (target, *_models(nodes))])
    console.print(as_table(plan(nodes, graph.store, again)))
    before = nodes if asked is None else [node for node in nodes if node is not target]
    # A page about named runs is recorded under these runs, not under the current experiment.
    about = config.runs if arguments.command == "report" else []
    _record(graph, before, about or [config.name], replace=False, arguments=arguments)
    execute_all(before, at_once(arguments), again)
    if asked is not None:
        make_share(target, asked)
    elif (table := target.maker.closing(target.output.path)) is not None:
        console.print(table)
    for model in _models(nodes):
        reference = model_reference(config.name, model.output, graph.store)
        said = f"sesame predict model={reference} input=<file>"
        console.print(f"the model is kept; use it: {said}", markup=False, soft_wrap=True)
    print(target.output.path)
    return [target]


def _models(nodes: list[Node]) -> list[Node]:
    return [node for node in nodes if node.stage == "model"]


def _run(arguments: Arguments, config: Config, report: ReportValue) -> list[Node]:
    assert report is no_report, "only single stages report how they go"
    graph = experiment(config, arguments.overrides)
    nodes = list(graph.nodes.values())
    chosen = select_stages(nodes, arguments.options.get("--from"), arguments.options.get("--until"))
    again = _again(arguments, chosen)
    console.print(as_table(plan(nodes, graph.store, again)))
    is_sweep = "-m" in arguments.options
    _record(graph, nodes, [config.name], replace=not is_sweep, arguments=arguments)
    execute_all(chosen, at_once(arguments), again)
    scored = [n.output.path for n in nodes if n.stage == "finetune" and n.output.is_done]
    if scored:
        console.print(scores_table(scored))
    for node in chosen:
        if node.stage == "report":
            console.print(NEXT.format(name=config.name), markup=False, soft_wrap=True)
            print(node.output.path / "index.html")
    return chosen


def _refuse_unused(arguments: Arguments) -> None:
    """Raise `UsageError` for references that a stage would ignore."""
    uses = {"encoder": ENCODER_USERS, "runs": ("report",)}
    remedies = {"encoder": "; init.source= names a model to start from", "runs": ""}
    for word in arguments.overrides:
        key = word.partition("=")[0].lstrip("+")
        if key in uses and arguments.command not in uses[key]:
            raise UsageError(
                f"{word}: {arguments.command} does not use it, only {', '.join(uses[key])} do"
                f"{remedies[key] if arguments.command == 'pretrain' else ''}"
            )


def _again(arguments: Arguments, nodes: list[Node]) -> list[Node]:
    """Return the nodes to make even if they are finished: all of them with --force."""
    if "--force" not in arguments.options:
        return []
    if "--share" in arguments.options:
        raise UsageError("--force: makes a whole output again; leave --share out")
    return nodes


def _record(
    graph: Graph, nodes: list[Node], names: list[str], replace: bool, arguments: Arguments
) -> None:
    """Record outputs under the names of runs before they are made, so that others find them."""
    graph.checksums.save()
    entries = as_entries(nodes, arguments)
    for name in names:
        Runs(graph.store).record(name, entries, replace)


def as_entries(nodes: list[Node], arguments: Arguments) -> list[Entry]:
    """Return nodes as outputs of a run, with the command that makes them again."""
    added = arguments.options.get("--config-dir")
    options = [f"--config-dir={Path(added).resolve()}"] if added else []
    command = shlex.join(["sesame", arguments.command, *arguments.overrides, *options])
    return [
        Entry(node.stage, node.output.fingerprint, node.label, command=command) for node in nodes
    ]


def experiment(config: Config, overrides: list[str]) -> Graph:
    """Return the graph of everything the experiment names; `config` is composed of `overrides`."""
    if not config.stages:
        raise UsageError("stages: this experiment names none; choose another experiment=")
    store = Store(Path(config.paths.store))
    graph = experiment_graph(
        store, STAGES, config, lambda point: compose_config([*overrides, *point])
    )
    add_models(graph)
    return graph


def select_stages(nodes: list[Node], first: str | None, last: str | None) -> list[Node]:
    """Return the nodes of the stages from `first` to `last`, both included.

    Raises a UsageError if an earlier output is missing.
    """
    for option, name in (("--from", first), ("--until", last)):
        if name is not None and name not in STAGES:
            raise UsageError(f"{option} {name}: must be one of {', '.join(STAGES)}")
    order = list(STAGES)
    low = order.index(first) if first else 0
    high = order.index(last) if last else len(order) - 1
    for node in nodes:
        if order.index(node.stage) < low and not node.output.is_done:
            raise UsageError(f"--from {first}: {node.stage} before it is not done; start there")
    return [node for node in nodes if low <= order.index(node.stage) <= high]


def stage_graph(name: str, config: Config, overrides: list[str]) -> tuple[Graph, Node]:
    """Return the graph of one stage instance, and its last node."""
    if name == "report":
        return _report(config, overrides)
    graph = Graph(Store(Path(config.paths.store)), STAGES)
    target = graph.request(Request(name, config))
    if isinstance(target, Input):
        raise UsageError(f"{name}: {target.path} is used as it is; there is nothing to make")
    add_models(graph)
    return graph, target


def _report(config: Config, overrides: list[str]) -> tuple[Graph, Node]:
    """Return graph and node of the page about named runs, or about this experiment."""
    if not config.runs:
        graph = experiment(config, overrides)
        return graph, add_report(graph, config, reported(graph))
    store = Store(Path(config.paths.store))
    graph, runs = Graph(store, STAGES), Runs(store)
    found: dict[str, Input] = {}
    for name in dict.fromkeys(runs.named(text, f"runs={text}") for text in map(str, config.runs)):
        for entry in runs.current(name):
            output = store.output(entry.stage, entry.fingerprint)
            if entry.stage != Report.name and output.is_done:
                role = "/".join(part for part in (name, entry.stage, entry.label) if part)
                if role in found:  # for example fine-tunings of two tasks under one label
                    role = f"{role}/{entry.fingerprint[:8]}"
                found[role] = as_input(Input(output.reference, output.path))
        if not any(role.startswith(f"{name}/") for role in found):
            raise UsageError(f"runs={name}: nothing of it is finished yet; see: sesame list")
    return graph, add_report(graph, config, found)
