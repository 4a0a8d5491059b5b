"""`sesame submit`, `status` and `cancel`, and `job`, which submitted scripts run."""

import shutil
import time
from pathlib import Path

from rich.live import Live

from data_prep.errors import UsageError
from data_prep.progress import console
from data_prep.work_units import ArraySlice
from pipeline.cluster import slurm
from pipeline.cluster.frozen import (
    Submission,
    find_submission,
    new_submission,
    refuse_changed_files,
    thaw_node,
)
from pipeline.cluster.site import Site, read_site
from pipeline.cluster.status import as_table as status_table
from pipeline.cluster.status import look
from pipeline.cluster.submit import (
    Planned,
    being_made,
    check_site,
    check_store,
    plan_jobs,
    script_of,
    submit_all,
    write_scripts,
)
from pipeline.commands.arguments import Arguments
from pipeline.commands.stages import as_entries, experiment, select_stages
from pipeline.commands.store import open_store
from pipeline.config.compose import compose_config
from pipeline.config.sweep import sweep_points
from pipeline.stages import STAGES
from pipeline.store.outputs import Store
from pipeline.store.runs import Entry, Runs
from pipeline.training.exits import Interrupted
from pipeline.workflow.execute import execute, make_share, refuse_damaged
from pipeline.workflow.graph import Graph
from pipeline.workflow.plan import as_table, plan
from pipeline.workflow.stage import Node

LOOK_SECONDS = 2.0


def submit(arguments: Arguments) -> None:
    """Submit everything the experiment names to SLURM; with -m, of all points of a sweep."""
    arguments.refuse_words()
    dry = "--dry-run" in arguments.options
    if not dry:
        slurm.require()
    site = read_site()
    swept = "-m" in arguments.options
    points = sweep_points(arguments.overrides) if swept else [arguments.overrides]
    configs = [compose_config(point) for point in points]
    config = configs[0]
    store = Store(Path(config.paths.store).resolve())
    graphs = [experiment(*each) for each in zip(configs, points, strict=True)]
    nodes = list({name: node for graph in graphs for name, node in graph.nodes.items()}.values())
    chosen = select_stages(nodes, arguments.options.get("--from"), arguments.options.get("--until"))
    console.print(as_table(plan(nodes, store)))
    refuse_damaged(nodes)
    check_site(chosen, site)
    known = not dry or slurm.answers()
    if known:
        check_store(store.root, site, slurm.hosts())
    else:
        console.print("SLURM does not answer here, so jobs already in the queue are not known")
    planned = _plan(chosen, site, being_made(store) if known else {})
    submission = new_submission(store, config.name)
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
        Runs(store).record(config.name, _entries(graphs, points), replace=not swept)


def _entries(graphs: list[Graph], points: list[list[str]]) -> list[Entry]:
    """Return the outputs of all points, each with the command of the first point that has it."""
    entries: dict[str, Entry] = {}
    for graph, point in zip(graphs, points, strict=True):
        made = as_entries(list(graph.nodes.values()), Arguments("run", [], point, {}))
        entries = dict(zip(graph.nodes, made, strict=True)) | entries
    return list(entries.values())


def _plan(nodes: list[Node], site: Site, queued: dict[str, str]) -> list[Planned]:
    """Return the jobs to submit; print the outputs that jobs in the queue already make."""
    for node in nodes:
        if node.output.reference in queued and not node.output.is_done:
            print(f"{_title(node)}: job {queued[node.output.reference]} makes it already")
    return plan_jobs(nodes, site, queued)


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
        print(f"{made.id}  {made.name}  {made.label}".rstrip())
    print(f"submission {submission.id}; sesame status shows how it goes")


def _title(node: Node) -> str:
    return f"{node.stage} {node.label}".rstrip()


def job(arguments: Arguments) -> None:
    """Make the output of one frozen stage instance, or a share of its work units."""
    if len(arguments.words) != 1:
        raise UsageError("job: name the file of one stage instance, nodes/<job>.json")
    share = arguments.options.get("--share")
    node = thaw_node(Path(arguments.words[0]), STAGES)
    refuse_changed_files(node)
    print(f"{_title(node)} {node.output.path}", flush=True)
    try:
        if share is not None:
            make_share(node, ArraySlice.parse(share))
        else:
            execute(node)
    except Interrupted as error:
        done = node.maker.how_far(node.output.path)
        raise Interrupted(f"interrupted: {_title(node)}, {done}") from error


def status(arguments: Arguments) -> None:
    """Print a table of a submission's jobs; on a terminal, update it until all have ended."""
    slurm.require()
    store = open_store(arguments)
    submission = find_submission(store, _one_word(arguments))
    lines = look(submission, store, STAGES)
    if "--once" in arguments.options or not console.is_terminal:
        from rich import print as show

        show(status_table(submission, lines))
        return
    with Live(status_table(submission, lines), console=console, auto_refresh=False) as live:
        while not all(line.is_over for line in lines):
            time.sleep(LOOK_SECONDS)
            lines = look(submission, store, STAGES)
            live.update(status_table(submission, lines), refresh=True)


def cancel(arguments: Arguments) -> None:
    """Cancel a submission's waiting and running jobs."""
    slurm.require()
    submission = find_submission(open_store(arguments), _one_word(arguments))
    queue = slurm.queue()
    live = [
        job.id for job in submission.jobs() if any(task.is_live for task in queue.get(job.id, []))
    ]
    slurm.cancel_jobs(live)
    said = f"cancelled {', '.join(live)}" if live else "nothing is waiting or running"
    print(f"submission {submission.id}: {said}")


def _one_word(arguments: Arguments) -> str | None:
    if len(arguments.words) > 1:
        raise UsageError(f"{arguments.words[1]}: name one submission, or none for the newest")
    return arguments.words[0] if arguments.words else None
