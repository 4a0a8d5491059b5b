"""`-m`: run a stage or an experiment once per point of a sweep, and print a table of all points.

Hydra's sweeper chooses the points and its launcher runs them. What all points need is made first.
Fine-tunings of a grid are made in parallel before the sweep, which then finds them finished.
Try it: sesame finetune -m encoder=mine task=sst2 finetune.lr=2e-5,5e-5 finetune.seed=1,2,3
"""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from omegaconf import DictConfig

from data_prep.errors import SesameError, UsageError
from data_prep.fields import walk
from data_prep.progress import console
from pipeline.cluster import slurm
from pipeline.cluster.site import read_site
from pipeline.commands.arguments import Arguments, show_error
from pipeline.commands.configuration import run_hydra
from pipeline.commands.early_stopping import EarlyStopping
from pipeline.commands.sweep_points import (
    OBJECTIVES,
    Point,
    finished_point,
    for_hydra,
    read_points,
    summarise_sweep,
    sweep_folder,
    write_point,
)
from pipeline.commands.vocabularies import vocabulary_table
from pipeline.config.compose import compose_config, emptied, typed
from pipeline.config.schema import Config
from pipeline.config.sweep import LAUNCHER, SWEEPER, Sweep, read_sweep
from pipeline.store.outputs import Store
from pipeline.tasks.summary import scores_table
from pipeline.training.exits import Interrupted
from pipeline.workflow.beside import SomeFailed
from pipeline.workflow.execute import execute_all, refuse_to_pretrain
from pipeline.workflow.graph import Graph
from pipeline.workflow.stage import Node, ReportValue, StoppedEarly, no_report

Do = Callable[[Arguments, Config, ReportValue], list[Node]]  # makes one point, its own output last
Target = Callable[[str, Config, list[str]], tuple[Graph, Node]]


def run_sweep(arguments: Arguments, do: Do, target: Target) -> None:
    """Run one job per point; print a summary of all points.

    A failed point does not stop the others. Raises a SesameError at the end if any failed.
    """
    command, sweep = arguments.command, read_sweep(arguments.overrides)
    config = compose_config(sweep.first())
    folder = sweep_folder(config)
    by_submitit = sweep.choices.launcher == "submitit_slurm"
    gpus = slurm.most_gpus() if by_submitit and slurm.answers() else {}
    told = for_hydra(sweep.overrides, command, config, folder, read_site(), sweep.choices, gpus)
    stops = _stops_early(arguments, command)
    count = at_once(arguments)
    if count is not None and count > 1 and (sweep.has_launcher or not sweep.is_grid or stops):
        how = "--stop-early" if stops else _who_runs(sweep)
        raise UsageError(f"--at-once: {how} says how points are run; leave one of them out")
    unmade = {} if stops else _prepare(arguments, sweep, target, count, folder.name)

    def job(raw: DictConfig) -> float:
        from hydra.core.hydra_config import HydraConfig

        point = list(HydraConfig.get().overrides.task)
        number = int(HydraConfig.get().job.num)
        settings = sweep.settings(point)
        place = folder / str(number)
        report = EarlyStopping(folder, number, command) if stops else no_report
        try:
            if number in unmade:
                raise unmade[number]
            own = Arguments(command, [], point, arguments.options)
            config = on_dashboards(typed(emptied(raw, point)), folder.name, settings)
            made = do(own, config, report)
        except Interrupted as error:
            raise _Left(error) from error
        except StoppedEarly as stopped:
            _say(str(stopped))
            write_point(place, Point(number, settings, "", None, stopped=str(stopped)))
            return stopped.value
        except SesameError as error:  # the other points still run; the sweep fails at the end
            show_error(command, error)
            write_point(place, Point(number, settings, "", None, str(error)))
            return math.nan
        measured = finished_point(number, settings, made[-1].output)
        write_point(place, measured)
        return math.nan if measured.value is None else measured.value

    folder.mkdir(parents=True)  # Optuna keeps its database in the parent folder
    try:
        run_hydra(["--multirun", *told], job)
    except _Left as left:
        raise left.interrupted from left
    _close(command, folder, Store(Path(config.paths.store)))


def on_dashboards(config: Config, sweep: str, settings: list[str]) -> Config:
    """Return the config of a point whose trainings are grouped by sweep and named by settings.

    Of paths and references only the last part is shown. Values given by the user are kept.
    """
    private = {key for key, rule, _ in walk(config) if rule.holds_environment}
    words = []
    for key, _, value in (word.lstrip("+").partition("=") for word in settings):
        shown = value.rpartition("/")[2] if key in private else value
        words.append(f"{key.rpartition('.')[2]}={shown}")
    tracking = config.tracking
    named = replace(
        tracking, group=tracking.group or sweep, label=tracking.label or ", ".join(words) or None
    )
    return replace(config, tracking=named)


def _say(text: str) -> None:
    """Print a line. submitit pickles `job` with the objects it names, and a console has a lock."""
    console.print(text, markup=False)


def at_once(arguments: Arguments) -> int | None:
    """Return the number of fine-tunings to run in parallel; None without --at-once."""
    text = arguments.options.get("--at-once")
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"--at-once {text}: must be a whole number, 1 or more")
    return int(text)


def _stops_early(arguments: Arguments, command: str) -> bool:
    """Return True with --stop-early. Raises `UsageError` for a stage that reports no progress."""
    if "--stop-early" not in arguments.options:
        return False
    if command not in OBJECTIVES:
        stages = " and ".join(OBJECTIVES)
        raise UsageError(f"--stop-early: only {stages} report how they go; leave it out")
    return True


def _who_runs(sweep: Sweep) -> str:
    if sweep.has_launcher:
        return f"{LAUNCHER}={sweep.choices.launcher}"
    return f"{SWEEPER}={sweep.choices.sweeper}"


def _prepare(
    arguments: Arguments, sweep: Sweep, target: Target, count: int | None, name: str
) -> dict[int, SesameError]:
    """Check every point of a grid, and make what can be made before the sweep.

    Returns the errors of failed points by their number.
    """
    if not sweep.is_grid:
        return {}
    points = sweep.points()
    configs = [  # a mistake stops the sweep at once
        on_dashboards(compose_config(point), name, sweep.settings(point)) for point in points
    ]
    if arguments.command == "run":
        return {}
    graphs = [target(arguments.command, *each) for each in zip(configs, points, strict=True)]
    prepare_common(arguments, graphs, sweep.shared())
    return {} if sweep.has_launcher else prepare_points(arguments, graphs, count, sweep.shared())


def prepare_points(
    arguments: Arguments,
    graphs: list[tuple[Graph, Node]],
    count: int | None,
    shared: list[str],
) -> dict[int, SesameError]:
    """Make the points' fine-tunings in parallel; the sweep then finds them finished.

    Returns the errors of failed points by their number, so that the sweep does not try them again.
    """
    if arguments.command != "finetune" or "--force" in arguments.options:
        return {}
    nodes = {reference: node for graph, _ in graphs for reference, node in graph.nodes.items()}
    refuse_to_pretrain(list(nodes.values()), arguments.command, shared)
    try:
        execute_all(list(nodes.values()), count)
    except SomeFailed as error:
        return {
            number: error.failures[target.output.reference]
            for number, (_, target) in enumerate(graphs)
            if target.output.reference in error.failures
        }
    except Interrupted:
        raise
    except SesameError as error:  # such as a process that was killed for memory
        console.print(f"{error}; the remaining points run one at a time", markup=False)
    return {}


def prepare_common(
    arguments: Arguments, graphs: list[tuple[Graph, Node]], shared: list[str]
) -> None:
    """Make the outputs that all points need before the points start, so that no job waits."""
    first, _ = graphs[0]
    common = [
        node
        for reference, node in first.nodes.items()
        if all(reference in graph.nodes and node.stage != target.stage for graph, target in graphs)
    ]
    missing = [node for node in common if not node.output.is_done]
    if missing and len(graphs) > 1:
        refuse_to_pretrain(missing, arguments.command, shared)
        console.print(f"making what all {len(graphs)} points need")
        execute_all(missing)


class _Left(BaseException):
    """A point was interrupted, so the sweep ends. Hydra would print any other exception."""

    def __init__(self, interrupted: Interrupted) -> None:
        super().__init__(str(interrupted))
        self.interrupted = interrupted


def _close(command: str, folder: Path, store: Store) -> None:
    """Print the table of a sweep. Raises `SesameError` if a point failed."""
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
