"""`sesame submit [stage]`: send an experiment, one stage or a sweep to SLURM.

Try it: sesame submit finetune -m encoder=mine task=sst2 finetune.seed=1,2,3 --dry-run
"""

import shutil
from pathlib import Path

from data_prep.errors import UsageError
from data_prep.progress import console
from pipeline.cluster import slurm
from pipeline.cluster.frozen import Submission, new_submission
from pipeline.cluster.limits import Limits, check_limits, read_limits
from pipeline.cluster.planning import Planned, plan_jobs
from pipeline.cluster.site import Site, read_site
from pipeline.cluster.submit import (
    being_made,
    check_store,
    script_of,
    submit_all,
    write_scripts,
)
from pipeline.commands.arguments import Arguments
from pipeline.commands.rehearse import submit_rehearsal
from pipeline.commands.stages import as_entries, experiment, select_stages, stage_graph
from pipeline.commands.submitted_sweep import label_nodes, record_sweep
from pipeline.commands.sweep import on_dashboards
from pipeline.config.compose import compose_config
from pipeline.config.schema import Config
from pipeline.config.sweep import read_sweep
from pipeline.stages import STAGES
from pipeline.store.outputs import Store
from pipeline.store.runs import Entry, Runs
from pipeline.workflow.execute import refuse_damaged, refuse_to_pretrain
from pipeline.workflow.graph import Graph
from pipeline.workflow.plan import as_table, plan
from pipeline.workflow.stage import Node
from pipeline.workflow.upgrades import refuse_to_start_anew


def submit(arguments: Arguments) -> None:
    """Submit an experiment, or one stage and what it needs; with -m, all points of a sweep."""
    _refuse_options(arguments)
    if "--rehearse" in arguments.options:
        submit_rehearsal(arguments, _site(arguments))
        return
    stage = _stage(arguments)
    dry = "--dry-run" in arguments.options
    if not dry:
        slurm.require()
    site = _site(arguments)
    sweep = read_sweep(arguments.overrides) if "-m" in arguments.options else None
    points = [arguments.overrides] if sweep is None else sweep.points()
    configs = [compose_config(point) for point in points]
    settings = [] if sweep is None else [sweep.settings(point) for point in points]
    if sweep is not None:
        named = zip(configs, settings, strict=True)
        configs = [on_dashboards(config, config.name, own) for config, own in named]
    store = Store(Path(configs[0].paths.store).resolve())
    graphs = [_graph(stage, *each) for each in zip(configs, points, strict=True)]
    nodes = label_nodes(graphs, settings) if sweep else list(graphs[0].nodes.values())
    chosen = select_stages(nodes, arguments.options.get("--from"), arguments.options.get("--until"))
    console.print(as_table(plan(nodes, store)))
    refuse_damaged(nodes)
    refuse_to_start_anew(nodes, again=[])
    planned = _plan(chosen, site, store, stage, arguments)
    submission = new_submission(store, configs[0].name)
    if not planned:
        print("nothing to submit")
    elif dry:
        for one in planned:
            waits = ", ".join([*one.after, *one.after_jobs]) or "nothing"
            print(f"# {one.name}, waits for {waits}\n{script_of(one, submission, site)}")
    else:
        for graph in graphs:
            graph.checksums.save()
        _send(planned, submission, site)
        if sweep is not None:
            record_sweep(submission, store, graphs, settings, chosen)
        entries = _entries(stage or "run", graphs, points)
        Runs(store).record(configs[0].name, entries, replace=sweep is None and stage is None)


def _refuse_options(arguments: Arguments) -> None:
    """Raise `UsageError` for an option that would have no effect beside the others."""
    rehearses = "--rehearse" in arguments.options
    for option in ("-m", "--until", "--from") if rehearses else ("--steps", "--price"):
        if option in arguments.options:
            goes = "does not go" if rehearses else "goes only"
            raise UsageError(f"{option}: {goes} with --rehearse")


def _stage(arguments: Arguments) -> str | None:
    """Return the stage to submit; None for the whole experiment."""
    if not arguments.words:
        return None
    if len(arguments.words) > 1 or arguments.words[0] not in STAGES:
        raise UsageError(
            f"{arguments.words[-1]}: submit takes one stage of {', '.join(STAGES)}, or none for "
            "the whole experiment; overrides look like key=value"
        )
    return arguments.words[0]


def _site(arguments: Arguments) -> Site:
    """Return the site's settings with those of this submission."""
    given = {name: arguments.options.get(f"--{name}") for name in ("time", "partition")}
    site = read_site().with_settings(**given)
    site.check_text("--")
    return site


def _graph(stage: str | None, config: Config, point: list[str]) -> Graph:
    return experiment(config, point) if stage is None else stage_graph(stage, config, point)[0]


def _plan(
    nodes: list[Node], site: Site, store: Store, stage: str | None, arguments: Arguments
) -> list[Planned]:
    """Return the jobs to submit, within the cluster's limits.

    Prints the outputs that jobs in the queue already make, and the limits that SLURM does not tell.
    """
    known = "--dry-run" not in arguments.options or slurm.answers()
    if known:
        check_store(store.root, site, slurm.hosts())
        limits, gpus, queued = read_limits(site), slurm.most_gpus(), being_made(store)
    else:
        limits, gpus, queued = Limits(), None, {}
        console.print(
            "SLURM does not answer here, so jobs already in the queue are not known, and GPUs are "
            "requested only for accelerator=cuda or by gpus in the site file"
        )
    unmade = [node for node in nodes if not node.output.is_done]
    for node in unmade:
        if node.output.reference in queued:
            print(f"{_title(node)}: job {queued[node.output.reference]} makes it already")
    if stage not in (None, "pretrain"):
        unqueued = [node for node in unmade if node.output.reference not in queued]
        refuse_to_pretrain(unqueued, f"submit {stage}", arguments.overrides)
    if limits.array is not None and site.array > limits.array:
        console.print(f"array={site.array}: SLURM allows {limits.array} tasks (MaxArraySize)")
    planned = plan_jobs(nodes, site, queued, gpus, limits.array)
    if known:
        check_limits(planned, limits, slurm.count_queued())
    return planned


def _send(planned: list[Planned], submission: Submission, site: Site) -> None:
    """Freeze code and configuration, then queue all jobs or none."""
    submission.create()
    try:
        submission.freeze_code()
        write_scripts(planned, submission, site)
        jobs = submit_all(planned, submission)
    except BaseException:
        shutil.rmtree(submission.path)
        raise
    for made in jobs:
        print(f"{made.id}  {made.title}  {made.label}".rstrip())
    print(f"submission {submission.id}; sesame status shows how it goes")


def _entries(command: str, graphs: list[Graph], points: list[list[str]]) -> list[Entry]:
    """Return the outputs of all points, each with the command of the first point that has it."""
    entries: dict[str, Entry] = {}
    for graph, point in zip(graphs, points, strict=True):
        made = as_entries(list(graph.nodes.values()), Arguments(command, [], point, {}))
        entries = dict(zip(graph.nodes, made, strict=True)) | entries
    return list(entries.values())


def _title(node: Node) -> str:
    return f"{node.stage} {node.label}".rstrip()
