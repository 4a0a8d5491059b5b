"""`sesame run`, `plan`, `path` and the stages: build the graph, print the plan, execute it."""

import math
import shlex
from collections.abc import Callable
from pathlib import Path

from omegaconf import DictConfig

from data_prep.errors import SesameError, UsageError
from data_prep.progress import console
from data_prep.work_units import ArraySlice
from pipeline.cluster.site import read_site
from pipeline.commands.arguments import Arguments, show_error
from pipeline.commands.configuration import run_hydra
from pipeline.commands.sweeps import (
    LAUNCHER,
    SWEEPER,
    Point,
    for_hydra,
    objective,
    read_points,
    summarise_sweep,
    sweep_folder,
    swept_keys,
    unswept,
    write_point,
)
from pipeline.commands.vocabularies import vocabulary_table
from pipeline.config.compose import compose_config, emptied, prepared, sweep_points, typed
from pipeline.config.schema import Config
from pipeline.stages import STAGES
from pipeline.stages.report import add_report, reported
from pipeline.store.outputs import Store
from pipeline.store.runs import Entry, Runs
from pipeline.tasks.summary import scores_table
from pipeline.training.exits import Interrupted
from pipeline.workflow.execute import SomeFailed, execute_all, make_share, refuse_to_pretrain
from pipeline.workflow.graph import Graph, experiment_graph
from pipeline.workflow.plan import as_table, plan
from pipeline.workflow.stage import Input, Node, Request, as_input

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
    """Print what `run` would do; make nothing."""
    graph = experiment(compose_config(arguments.overrides), arguments.overrides)
    console.print(as_table(plan(list(graph.nodes.values()), graph.store)))


def path(arguments: Arguments) -> None:
    """Print where a stage's output is or would be."""
    if len(arguments.words) != 1 or arguments.words[0] not in STAGES:
        raise UsageError(f"path: name one stage of {', '.join(STAGES)}")
    config = compose_config(arguments.overrides)
    _, target = stage_graph(arguments.words[0], config, arguments.overrides)
    print(target.output.path)


def _dispatch(arguments: Arguments, do: Callable[[Arguments, Config], list[Node]]) -> None:
    """Compose the configuration and call `do`; with -m, once per point of a sweep."""
    arguments.refuse_words()
    if "-m" in arguments.options:
        _sweep(arguments, do)
    else:
        do(arguments, compose_config(arguments.overrides))


def _sweep(arguments: Arguments, do: Callable[[Arguments, Config], list[Node]]) -> None:
    """Let Hydra's sweeper and launcher run one job per point; print a summary of all points.

    A failed point does not stop the others. Raises a SesameError at the end if any failed.
    """
    command, overrides = arguments.command, prepared(arguments.overrides)
    config = compose_config(unswept(overrides))
    folder = sweep_folder(config)
    told = for_hydra(overrides, command, config, folder, read_site())
    swept = swept_keys(overrides)
    at_once = _at_once(arguments)
    launcher = next(filter(_says_who_runs, overrides), None)
    unmade: dict[int, SesameError] = {}
    if at_once is not None and at_once > 1 and launcher:
        raise UsageError(f"--at-once: {launcher} says how points are run; leave one of them out")
    if f"{SWEEPER}=optuna" not in overrides and command == "run":
        for point in sweep_points(overrides):  # a mistake in any point stops the sweep at once
            compose_config(_without_hydra(point))
    elif f"{SWEEPER}=optuna" not in overrides:
        graphs = _point_graphs(arguments, sweep_points(overrides))
        _prepare_common(arguments, graphs)
        if not launcher:
            unmade = _prepare_points(arguments, graphs, at_once)

    def job(raw: DictConfig) -> float:
        from hydra.core.hydra_config import HydraConfig

        point = list(HydraConfig.get().overrides.task)
        number = int(HydraConfig.get().job.num)
        settings = [word for word in point if word.lstrip("+").partition("=")[0] in swept]
        try:
            if number in unmade:
                raise unmade[number]
            made = do(Arguments(command, [], point, arguments.options), typed(emptied(raw, point)))
        except Interrupted as error:
            raise _Left(error) from error
        except SesameError as error:  # the other points still run; the sweep fails at the end
            show_error(command, error)
            write_point(folder / str(number), Point(number, settings, "", None, str(error)))
            return math.nan
        output, value = made[-1].output.reference, objective(made[-1].output)
        write_point(folder / str(number), Point(number, settings, output, value))
        return math.nan if value is None else value

    folder.mkdir(parents=True)  # Optuna keeps its database in the parent folder
    try:
        run_hydra(["--multirun", *told], job)
    except _Left as left:
        raise left.interrupted from left
    store = Store(Path(config.paths.store))
    console.print(summarise_sweep(folder, command, store))
    points = read_points(folder)
    made = [(p.settings, store.from_reference(p.output).path) for p in points if p.output]
    if command == "tokenizer" and made:
        console.print(vocabulary_table(made))
    if command == "finetune" and made:
        console.print(scores_table([path for _, path in made]))
    failed = [point for point in points if point.error]
    if failed:
        raise SesameError(
            f"{len(failed)} of {len(points)} points failed, the first with: {failed[0].error}"
        )


class _Left(BaseException):
    """A point was interrupted, so the sweep ends. Hydra would print any other exception."""

    def __init__(self, interrupted: Interrupted) -> None:
        super().__init__(str(interrupted))
        self.interrupted = interrupted


def _says_who_runs(override: str) -> bool:
    return override.partition("=")[0] in (LAUNCHER, SWEEPER)


def _at_once(arguments: Arguments) -> int | None:
    """Return the number of fine-tunings to run in parallel; None without --at-once."""
    text = arguments.options.get("--at-once")
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"--at-once {text}: must be a whole number, 1 or more")
    return int(text)


def _point_graphs(arguments: Arguments, points: list[list[str]]) -> list[tuple[Graph, Node]]:
    graphs = []
    for point in points:
        config = compose_config(_without_hydra(point))
        graphs.append(stage_graph(arguments.command, config, point))
    return graphs


def _without_hydra(point: list[str]) -> list[str]:
    return [word for word in point if not word.startswith("hydra")]


def _prepare_points(
    arguments: Arguments, graphs: list[tuple[Graph, Node]], at_once: int | None
) -> dict[int, SesameError]:
    """Make the points' fine-tunings in parallel; the sweep then finds them finished.

    Returns the errors of failed points by their number, so that the sweep does not try them again.
    """
    if arguments.command != "finetune":
        return {}
    nodes = {reference: node for graph, _ in graphs for reference, node in graph.nodes.items()}
    refuse_to_pretrain(list(nodes.values()), arguments.command, unswept(arguments.overrides))
    try:
        execute_all(list(nodes.values()), at_once)
    except SomeFailed as error:
        return {
            number: error.failures[target.output.reference]
            for number, (_, target) in enumerate(graphs)
            if target.output.reference in error.failures
        }
    except SesameError as error:  # such as a process that was killed for memory
        console.print(f"{error}; the remaining points run one at a time", markup=False)
    return {}


def _prepare_common(arguments: Arguments, graphs: list[tuple[Graph, Node]]) -> None:
    """Make the outputs that all points need before the points start, so that no job waits."""
    first, _ = graphs[0]
    common = [
        node
        for reference, node in first.nodes.items()
        if all(reference in graph.nodes and node.stage != target.stage for graph, target in graphs)
    ]
    missing = [node for node in common if not node.output.is_done]
    if missing and len(graphs) > 1:
        refuse_to_pretrain(missing, arguments.command, unswept(arguments.overrides))
        console.print(f"making what all {len(graphs)} points need")
        execute_all(missing)


def _stage(arguments: Arguments, config: Config) -> list[Node]:
    graph, target = stage_graph(arguments.command, config, arguments.overrides)
    nodes = list(graph.nodes.values())
    if arguments.command != "pretrain":
        refuse_to_pretrain(nodes, arguments.command, arguments.overrides)
    share = arguments.options.get("--share")
    asked = ArraySlice.parse(share) if share is not None else None
    again = _again(arguments, [target])
    console.print(as_table(plan(nodes, graph.store, again)))
    before = nodes if asked is None else [node for node in nodes if node is not target]
    # A page about named runs is recorded under these runs, not under the current experiment.
    about = config.runs if arguments.command == "report" else []
    _record(graph, before, about or [config.name], replace=False, arguments=arguments)
    execute_all(before, _at_once(arguments), again)
    if asked is not None:
        make_share(target, asked)
    elif (table := target.maker.closing(target.output.path)) is not None:
        console.print(table)
    print(target.output.path)
    return [target]


def _run(arguments: Arguments, config: Config) -> list[Node]:
    graph = experiment(config, arguments.overrides)
    nodes = list(graph.nodes.values())
    chosen = select_stages(nodes, arguments.options.get("--from"), arguments.options.get("--until"))
    again = _again(arguments, chosen)
    console.print(as_table(plan(nodes, graph.store, again)))
    is_sweep = "-m" in arguments.options
    _record(graph, nodes, [config.name], replace=not is_sweep, arguments=arguments)
    execute_all(chosen, _at_once(arguments), again)
    scored = [n.output.path for n in nodes if n.stage == "finetune" and n.output.is_done]
    if scored:
        console.print(scores_table(scored))
    for node in chosen:
        if node.stage == "report":
            console.print(NEXT.format(name=config.name), markup=False, soft_wrap=True)
            print(node.output.path / "index.html")
    return chosen


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
    command = shlex.join(["sesame", arguments.command, *arguments.overrides])
    return [
        Entry(node.stage, node.output.fingerprint, node.label, command=command) for node in nodes
    ]


def experiment(config: Config, overrides: list[str]) -> Graph:
    """Return the graph of everything the experiment names; `config` is composed of `overrides`."""
    if not config.stages:
        raise UsageError("stages: this experiment names none; choose another experiment=")
    store = Store(Path(config.paths.store))
    return experiment_graph(
        store, STAGES, config, lambda point: compose_config([*overrides, *point])
    )


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
            if entry.stage != "report" and output.is_done:
                role = "/".join(part for part in (name, entry.stage, entry.label) if part)
                if role in found:  # for example fine-tunings of two tasks under one label
                    role = f"{role}/{entry.fingerprint[:8]}"
                found[role] = as_input(Input(output.reference, output.path))
        if not any(role.startswith(f"{name}/") for role in found):
            raise UsageError(f"runs={name}: nothing of it is finished yet; see: sesame list")
    return graph, add_report(graph, config, found)
