"""Submit planned jobs to SLURM.

Everything is written and checked before the first job is queued. If SLURM refuses a job, the jobs
before it are cancelled, so that a submission is complete or empty.
"""

import socket
from pathlib import Path

import psutil

from data_prep.errors import UsageError
from pipeline.cluster import slurm
from pipeline.cluster.frozen import Submission, SubmittedJob, freeze_node, submissions
from pipeline.cluster.planning import Planned
from pipeline.cluster.scripts import container_wrapper, environment, fill_template
from pipeline.cluster.site import Site, site_path
from pipeline.store.outputs import Store

LOCAL_DISKS = ("btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "tmpfs", "xfs", "zfs")


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
        if not job.shares and any(task.is_live for task in slurm.tasks_of(job.id, queue))
    }


def write_scripts(planned: list[Planned], submission: Submission, site: Site) -> None:
    """Write every job's script and frozen stage instances."""
    for job in planned:
        for number, node in enumerate(job.nodes):
            freeze_node(node, submission.node(job.name, number if len(job.nodes) > 1 else None))
        submission.script(job.name).write_text(script_of(job, submission, site))


def script_of(job: Planned, submission: Submission, site: Site) -> str:
    """Return the text of a job's script."""
    node, script = submission.node(job.name), submission.script(job.name)
    if len(job.nodes) > 1:
        node = node.with_suffix("")  # a folder with one instance per task
    folder = str(submission.logs).replace("%", "%%")  # sbatch replaces %j and the like
    log = f"{folder}/{job.name}-{'%A_%a' if job.array else '%j'}.log"
    options = [
        f"--job-name={job.title}",
        f"--chdir={Path.cwd()}",
        f"--output={log}",
        f"--signal=B:USR1@{site.signal}",
        *(["--no-requeue"] if site.continuation == "chain" else ["--requeue"]),
        *([f"--array={job.array}"] if job.array else []),
        *job.options,
    ]
    arguments = [*([f"{job.shares}:{job.of_pass}"] if job.shares else []), "job", str(node)]
    setup = environment(site, submission.code, script)
    wrapper = container_wrapper(site, submission.code)
    return fill_template(job.template, options, setup, arguments, wrapper)


def submit_all(planned: list[Planned], submission: Submission) -> list[SubmittedJob]:
    """Queue all jobs, or none; raise Refused if SLURM refuses one."""
    for job in planned:
        slurm.check_script(submission.script(job.name))
    ids: dict[str, list[str]] = {}  # by planned job: its id, or the ids of its tasks
    jobs: list[SubmittedJob] = []
    try:
        for job in planned:
            after = [*job.after_jobs, *(each for name in job.after for each in ids[name])]
            made = slurm.submit_script(submission.script(job.name), after)
            several = len(job.nodes) > 1
            own = [f"{made}_{task}" for task in range(len(job.nodes))] if several else [made]
            ids[job.name] = own
            jobs += [
                SubmittedJob(job.name, each, node.stage, node.label, node.output.reference, after,
                             job.shares, job.of_pass)
                for each, node in zip(own, job.nodes, strict=True)
            ]  # fmt: skip
            submission.write_jobs(jobs)
    except BaseException as error:
        slurm.cancel_jobs([each.partition("_")[0] for own in ids.values() for each in own[:1]])
        done = f"; the {len(ids)} jobs before it were cancelled" if ids else ""
        if isinstance(error, slurm.Refused):
            raise slurm.Refused(f"{job.name}: {error}{done}; nothing is queued") from error
        raise
    return jobs
