"""A graph as SLURM jobs: one an output, an array and a merge where a stage has pieces.

Everything is written and checked before the first job is queued; where a later one is refused,
those before it are cancelled, so that nothing is half submitted.
"""

import socket
from dataclasses import dataclass
from pathlib import Path

import psutil

from data_prep.errors import UsageError
from data_prep.work_units import ArraySlice
from pipeline.cluster import slurm
from pipeline.cluster.frozen import Job, Submission, freeze_node, submissions
from pipeline.cluster.scripts import environment, fill
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
    after: list[str]  # names of planned jobs
    after_jobs: list[str]  # ids of jobs that are in the queue already
    shares: int = 0  # of the pieces, where it is an array over them
    array: str = ""  # which of them, and how many at once


def plan_jobs(nodes: list[Node], site: Site, being_made: dict[str, str]) -> list[Planned]:
    """The jobs that make all missing outputs; `being_made` has jobs in the queue by output."""
    planned: list[Planned] = []
    makers: dict[str, str] = {}  # the planned job that makes an output
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
    """The shares of a stage's pieces that no earlier array has made."""
    made = shares_made(node.output, count)
    return [number for number in range(count) if ArraySlice(number, count) not in made]


def _shape(node: Node) -> tuple[str, list[str]]:
    """The template of a stage, and the nodes and tasks it needs."""
    if node.stage != "pretrain":
        return "stage", []
    trainer = node.config.trainer
    return "train", [f"--nodes={trainer.num_nodes}", f"--ntasks-per-node={trainer.devices}"]


def check_site(nodes: list[Node], site: Site) -> None:
    """Refuse what the site file and the configuration together make impossible."""
    for node in nodes:
        trainer, gpus = node.config.trainer, site.of(node.stage).gpus
        wanted = trainer.devices if trainer.accelerator == "cuda" else 0
        if node.stage == "pretrain" and gpus is not None and gpus < wanted:
            raise UsageError(
                f"{site_path()}: stages.pretrain.gpus={gpus}: trainer.devices={wanted} ranks a "
                "node need as many"
            )


def check_store(store: Path, site: Site, hosts: set[str]) -> None:
    """Refuse a store on a disk of this machine that other machines are to use."""
    here = socket.gethostname()
    others = sorted(host for host in hosts if host.partition(".")[0] != here.partition(".")[0])
    kind = disk_kind(store)
    if others and kind in LOCAL_DISKS and not site.shared_store:
        raise UsageError(
            f"paths.store={store}: lies on a disk of this machine ({kind}), which {others[0]} "
            "cannot see; put it on a shared disk, or set `shared_store: true` in "
            f"{site_path()} if the nodes do see it"
        )


def disk_kind(path: Path) -> str:
    """The kind of file system that `path` is or would be on."""
    mounts = {Path(mount.mountpoint): mount.fstype for mount in psutil.disk_partitions(all=True)}
    place = path.resolve()
    return next((mounts[p] for p in (place, *place.parents) if p in mounts), "")


def being_made(store: Store) -> dict[str, str]:
    """Outputs that jobs of earlier submissions will make, and the last job of each."""
    queue = slurm.queue()
    return {
        job.reference: job.id
        for submission in submissions(store)
        for job in submission.jobs()
        if not job.shares and any(task.is_live for task in queue.get(job.id, []))
    }


def write_scripts(planned: list[Planned], submission: Submission, site: Site) -> None:
    """Write every job's script and what it makes."""
    for job in planned:
        freeze_node(job.node, submission.node(job.name))
        submission.script(job.name).write_text(script_of(job, submission, site))


def script_of(job: Planned, submission: Submission, site: Site) -> str:
    """The text of a job's script."""
    node, script = submission.node(job.name), submission.script(job.name)
    log = submission.logs / f"{job.name}-{'%A_%a' if job.array else '%j'}.log"
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
    return fill(job.template, options, environment(site, submission.code, script), arguments)


def submit_all(planned: list[Planned], submission: Submission) -> list[Job]:
    """Queue every job, or none."""
    for job in planned:
        slurm.check_script(submission.script(job.name))
    ids: dict[str, str] = {}
    jobs: list[Job] = []
    try:
        for job in planned:
            after = [*job.after_jobs, *(ids[name] for name in job.after)]
            ids[job.name] = slurm.submit_script(submission.script(job.name), after)
            node = job.node
            made = (job.name, ids[job.name], node.stage, node.label, node.output.reference)
            jobs.append(Job(*made, after, job.shares))
            submission.write_jobs(jobs)
    except BaseException as error:
        slurm.cancel_jobs(list(ids.values()))
        done = f"; the {len(ids)} jobs before it were cancelled" if ids else ""
        if isinstance(error, slurm.Refused):
            raise slurm.Refused(f"{job.name}: {error}{done}; nothing is queued") from error
        raise
    return jobs
