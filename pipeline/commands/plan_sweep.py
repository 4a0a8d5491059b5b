"""`sesame plan -m`: the outputs of all points of a sweep, and what is to be made in all."""

from collections.abc import Callable

from data_prep.progress import console
from pipeline.commands.arguments import Arguments
from pipeline.commands.estimate import SWEEP_GPU, UTILISATION
from pipeline.commands.submitted_sweep import label_nodes
from pipeline.commands.sweep_cost import cost_of, total
from pipeline.config.compose import compose_config
from pipeline.config.schema import Config
from pipeline.config.sweep import read_sweep
from pipeline.workflow.graph import Graph
from pipeline.workflow.plan import as_table, plan


def plan_sweep(arguments: Arguments, experiment: Callable[[Config, list[str]], Graph]) -> None:
    """Print one row per output, with the settings of its point, and the totals."""
    sweep = read_sweep(arguments.overrides)
    points = sweep.points()
    configs = [compose_config(point) for point in points]
    graphs = [experiment(*each) for each in zip(configs, points, strict=True)]
    settings = [sweep.settings(point) for point in points]
    nodes = label_nodes(graphs, settings)
    console.print(as_table(plan(nodes, graphs[0].store)))
    left = [node for node in nodes if not node.output.is_done]
    costs = [
        cost_of(each, config, SWEEP_GPU, UTILISATION, None)
        for each, config in zip(settings, configs, strict=True)
    ]

    def is_needed(point: int, stage: str) -> bool:
        made = [node for node in graphs[point].nodes.values() if node.stage == stage]
        return any(not node.output.is_done for node in made)

    console.print(
        f"{len(points)} points: {len(left)} of {len(nodes)} outputs to make, each a job of "
        f"sesame submit; {total(costs, is_needed)} (hours on {SWEEP_GPU.name} at "
        f"{100 * UTILISATION:g} % of its peak)",
        markup=False, soft_wrap=True,
    )  # fmt: skip
