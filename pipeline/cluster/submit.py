"""Submit a graph as SLURM jobs: one job per output; for stages with work units an array first.

The array makes the work units and the output's own job merges them. Everything is written and
checked before the first job is queued. If SLURM refuses a job, the jobs before it are cancelled, so
that a submission is complete or empty.
"""

import socket
from dataclasses import dataclass
from pathlib import Path

import psutil

from data_prep.errors import UsageError
from data_prep.work_units import ArraySlice
from pipeline.cluster import slurm
from pipeline.cluster.frozen import Submission, SubmittedJob, freeze_node, submissions
from pipeline.cluster.scripts import environment, fill_template
from pipeline.cluster.site import Site, site_path
from pipeline.store.outputs import Store
from pipeline.workflow.execute import shares_made
from pipeline.workflow.stage import Node

LOCAL_DISKS = ("btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "tmpfs", "xfs", "zfs")


@dataclass(frozen=True)
class Planned:
    """A job that is not submitted yet."""

    name: str
    node: Node
    template: str
    options: list[str]
    after: list[str]  # names of planned jobs to wait for
    after_jobs: list[str]  # ids of queued jobs to wait for
    shares: int = 0  # number of shares of the work units; 0 if it is not an array
    array: str = ""  # sbatch's --array: tasks and maximum running at a time


def plan_jobs(nodes: list[Node], site: Site, being_made: dict[str, str]) -> list[Planned]:
    """Return the jobs that make all missing outputs.

    `being_made`: jobs in the queue, by the reference of the output they make.
    """
    planned: list[Planned] = []
    makers: dict[str, str] = {}  # name of the planned job by output
    for node in nodes:
        if node.output.is_done or node.output.reference in being_made:
            continue
        needs = [item.reference for item in node.inputs.values()]
        after = [makers[reference] for reference in needs if reference in makers]
        after_jobs = [
            being_made[reference]
            for reference in needs
            if reference in being_made and reference not in makers
        ]
        name = f"{len(makers) + 1:02d}-{node.stage}"
        makers[node.output.reference] = name
        waits = (list(dict.fromkeys(after)), list(dict.fromkeys(after_jobs)))
        options = site.of(node.stage).options()
        if site.array > 1 and node.maker.takes_shares:
            missing = missing_shares(node, site.array)
            if missing:
                every = len(missing) == site.array
                tasks = f"0-{site.array - 1}" if every else ",".join(map(str, missing))
                array = f"{tasks}%{site.at_once}"
                planned.append(
                    Planned(f"{name}-pieces", node, "pieces", options, *waits, site.array, array)
                )
                waits = ([f"{name}-pieces"], waits[1])
        template, shape = _shape(node)
        planned.append(Planned(name, node, template, [*shape, *options], *waits))
    return planned


def missing_shares(node: Node, count: int) -> list[int]:
    """Return the shares of a stage's work units that no earlier array has made."""
    made = shares_made(node.output, count)
    return [number for number in range(count) if ArraySlice(number, count) not in made]


def _shape(node: Node) -> tuple[str, list[str]]:
    """Return a stage's template, and its options for nodes and tasks."""
    if node.stage != "pretrain":
        return "stage", []
    trainer = node.config.trainer
    return "train", [f"--nodes={trainer.num_nodes}", f"--ntasks-per-node={trainer.devices}"]


def check_site(nodes: list[Node], site: Site) -> None:
    """Raise a UsageError if the site file and the configuration contradict each other."""
    for node in nodes:
        trainer, gpus = node.config.trainer, site.of(node.stage).gpus
        wanted = trainer.devices if trainer.accelerator == "cuda" else 0
        if node.stage == "pretrain" and gpus is not None and gpus < wanted:
            raise UsageError(
                f"{site_path()}: stages.pretrain.gpus={gpus}: trainer.devices={wanted} needs "
                f"{wanted} GPUs per node"
            )


def check_store(store: Path, site: Site, hosts: set[str]) -> None:
    """Raise a UsageError if the store is on a local disk and other machines need it."""
    here = socket.gethostname()
    others = sorted(host for host in hosts if host.partition(".")[0] != here.partition(".")[0])
    kind = disk_kind(store)
    if others and kind in LOCAL_DISKS and not site.shared_store:
        raise UsageError(
            f"paths.store={store}: is on a local disk of this machine ({kind}), which {others[0]} "
            "cannot see; put it on a shared disk, or set `shared_store: true` in "
            f"{site_path()} if the nodes do see it"
        )


def disk_kind(path: Path) -> str:
    """Return the file system type of `path`, which need not exist; "" if unknown."""
    mounts = {Path(mount.mountpoint): mount.fstype for mount in psutil.disk_partitions(all=True)}
    place = path.resolve()
    return next((mounts[p] for p in (place, *place.parents) if p in mounts), "")


def being_made(store: Store) -> dict[str, str]:
    """Return the outputs that queued jobs of earlier submissions make, with the job's id."""
    queue = slurm.queue()
    return {
        job.reference: job.id
        for submission in submissions(store)
        for job in submission.jobs()
        if not job.shares and any(task.is_live for task in queue.get(job.id, []))
    }


def write_scripts(planned: list[Planned], submission: Submission, site: Site) -> None:
    """Write every job's script and frozen stage instance."""
    for job in planned:
        freeze_node(job.node, submission.node(job.name))
        submission.script(job.name).write_text(script_of(job, submission, site))


def script_of(job: Planned, submission: Submission, site: Site) -> str:
    """Return the text of a job's script."""
    node, script = submission.node(job.name), submission.script(job.name)
    folder = str(submission.logs).replace("%", "%%")  # sbatch replaces %j and the like
    log = f"{folder}/{job.name}-{'%A_%a' if job.array else '%j'}.log"
    options = [
        f"--job-name={job.node.config.name}-{job.name}",
        f"--chdir={Path.cwd()}",
        f"--output={log}",
        f"--signal=B:USR1@{site.signal}",
        *(["--no-requeue"] if site.continuation == "chain" else ["--requeue"]),
        *([f"--array={job.array}"] if job.array else []),
        *job.options,
    ]
    arguments = [*([str(job.shares)] if job.shares else []), "job", str(node)]
    return fill_template(
        job.template, options, environment(site, submission.code, script), arguments
    )


def submit_all(planned: list[Planned], submission: Submission) -> list[SubmittedJob]:
    """Queue all jobs, or none; raise Refused if SLURM refuses one."""
    for job in planned:
        slurm.check_script(submission.script(job.name))
    ids: dict[str, str] = {}
    jobs: list[SubmittedJob] = []
    try:
        for job in planned:
            after = [*job.after_jobs, *(ids[name] for name in job.after)]
            ids[job.name] = slurm.submit_script(submission.script(job.name), after)
            node = job.node
            made = (job.name, ids[job.name], node.stage, node.label, node.output.reference)
            jobs.append(SubmittedJob(*made, after, job.shares))
            submission.write_jobs(jobs)
    except BaseException as error:
        slurm.cancel_jobs(list(ids.values()))
        done = f"; the {len(ids)} jobs before it were cancelled" if ids else ""
        if isinstance(error, slurm.Refused):
            raise slurm.Refused(f"{job.name}: {error}{done}; nothing is queued") from error
        raise
    return jobs
