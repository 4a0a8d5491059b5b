"""Plan the jobs of a graph: one job per output, and arrays where several tasks wait for the same.

Stages with work units get an array per pass over them, one after another, and a job that completes
the output. Fine-tunings
that wait for the same jobs become one array with a task per output. Nothing here calls SLURM.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from data_prep.errors import UsageError
from data_prep.passes import ArraySlice
from pipeline.cluster.site import Site, site_path
from pipeline.workflow.execute import shares_made
from pipeline.workflow.stage import Node

LONGEST_NAME = 60  # of a job, in the tables of squeue


@dataclass(frozen=True)
class Planned:
    """A job that is not submitted yet."""

    name: str
    nodes: list[Node]  # several in an array with a task per output
    template: str
    options: list[str]
    after: list[str]  # names of planned jobs to wait for
    after_jobs: list[str]  # ids of queued jobs to wait for
    shares: int = 0  # number of shares of the work units; 0 if it makes outputs
    of_pass: str = ""  # the pass whose work units the shares are
    array: str = ""  # sbatch's --array: tasks and maximum running at a time
    tasks: int = 1  # number of tasks that SLURM counts as jobs

    @property
    def node(self) -> Node:
        """The node of a job that works on one output; the first of several."""
        return self.nodes[0]

    @property
    def title(self) -> str:
        """The name that SLURM shows: run, job, and what distinguishes it from its neighbours."""
        name = f"{self.node.config.name}-{self.name}"
        is_single = len(self.nodes) == 1
        settings = _short_label(self.node.label) if is_single else _swept_keys(self.nodes)
        return f"{name}-{settings}"[:LONGEST_NAME] if settings else name


def _short_label(label: str) -> str:
    """Return a label without the sections of its keys and without white space."""
    parts = [part.partition("=") for part in label.split(", ") if part]
    return ",".join(f"{key.rpartition('.')[2]}{equals}{value}" for key, equals, value in parts)


def _swept_keys(nodes: list[Node]) -> str:
    """Return the keys in which the labels of nodes differ."""
    labels = [node.label.split(", ") for node in nodes]
    differing = [part for label in labels for part in label if not all(part in o for o in labels)]
    return ",".join(dict.fromkeys(part.partition("=")[0].rpartition(".")[2] for part in differing))


def plan_jobs(
    nodes: list[Node],
    site: Site,
    being_made: dict[str, str],
    gpus: dict[str, int] | None = None,
    most_tasks: int | None = None,
) -> list[Planned]:
    """Return the jobs that make all missing outputs.

    `being_made`: jobs in the queue, by the reference of the output they make.
    `gpus`: the most GPUs of a node by partition ("" is the default partition); None if not known.
    `most_tasks`: the largest array that SLURM accepts.
    """
    array = min(site.array, most_tasks or site.array)
    planned: list[Planned] = []
    makers: dict[str, str] = {}  # name of the planned job by output
    for node in nodes:
        if node.output.is_done or node.output.reference in being_made:
            continue
        name = f"{len(makers) + 1:02d}-{node.stage}"
        waits = _waits(node, makers, being_made)
        makers[node.output.reference] = name
        options = options_of(node, site, gpus)
        passes = node.maker.divided_passes(node.config, node.files)
        for of_pass in passes if array > 1 else ():
            missing = missing_shares(node, array, of_pass)
            if missing:
                tasks = f"{_task_list(missing, array)}%{site.at_once}"
                planned.append(
                    Planned(
                        f"{name}-{of_pass}", [node], "pieces", options, *waits, array, of_pass,
                        tasks, len(missing),
                    )
                )  # fmt: skip
                waits = ([f"{name}-{of_pass}"], waits[1])
        template, shape = shape_of(node)
        planned.append(Planned(name, [node], template, [*shape, *options], *waits))
    return _with_arrays(planned, site, array, most_tasks)


def _waits(
    node: Node, makers: dict[str, str], being_made: dict[str, str]
) -> tuple[list[str], list[str]]:
    """Return the planned jobs and the queued jobs that a node waits for."""
    needs = [item.reference for item in node.inputs.values()]
    after = [makers[reference] for reference in needs if reference in makers]
    after_jobs = [
        being_made[reference]
        for reference in needs
        if reference in being_made and reference not in makers
    ]
    return list(dict.fromkeys(after)), list(dict.fromkeys(after_jobs))


def options_of(node: Node, site: Site, gpus: dict[str, int] | None) -> list[str]:
    """Return the options of sbatch for a node's resources; raise a UsageError for too few GPUs."""
    own = site.of(node.stage)
    try:
        wanted = own.for_stage(node.stage, node.config, own.available(gpus or {}))
    except UsageError as error:
        raise UsageError(f"{site_path()}: {error}") from error
    return wanted.options(as_gres=site.gpu_option == "gres")


def _task_list(missing: list[int], count: int) -> str:
    return f"0-{count - 1}" if len(missing) == count else ",".join(map(str, missing))


def missing_shares(node: Node, count: int, of_pass: str) -> list[int]:
    """Return the shares of a pass that no earlier array has made."""
    made = shares_made(node.output, count, of_pass)
    every = (ArraySlice(number, count, of_pass) for number in range(count))
    return [share.number for share in every if share not in made]


def shape_of(node: Node) -> tuple[str, list[str]]:
    """Return a stage's template, and its options for nodes and tasks."""
    if node.stage != "pretrain":
        return "stage", []
    trainer = node.config.trainer
    return "train", [f"--nodes={trainer.num_nodes}", f"--ntasks-per-node={trainer.devices}"]


def _with_arrays(
    planned: list[Planned], site: Site, array: int, most_tasks: int | None
) -> list[Planned]:
    """Replace single jobs that may run side by side, on equal terms, by arrays."""
    joined: dict[str, str] = {}  # name of the array by name of the job that became its task
    done: list[Planned] = []
    for group in _groups(planned, most_tasks) if array > 1 else [[job] for job in planned]:
        first = group[0]
        if len(group) > 1:
            tasks = f"0-{len(group) - 1}%{site.at_once}"
            nodes = [job.node for job in group]
            joined |= {job.name: first.name for job in group}
            first = replace(first, nodes=nodes, array=tasks, tasks=len(group))
        done.append(first)
    return [
        replace(job, after=list(dict.fromkeys(joined.get(name, name) for name in job.after)))
        for job in done
    ]


def _groups(planned: list[Planned], most_tasks: int | None) -> Iterator[list[Planned]]:
    """Yield jobs that can share one array, in the order of the plan; most groups have one job."""
    groups: dict[object, list[Planned]] = {}
    for number, job in enumerate(planned):
        key: object = number
        if job.node.maker.runs_beside and not job.shares:
            terms = (job.template, *map(tuple, (job.options, job.after, job.after_jobs)))
            key = (job.node.stage, terms)
        while most_tasks and len(groups.get(key, [])) >= most_tasks:
            key = (key, "next")
        groups.setdefault(key, []).append(job)
    yield from groups.values()
