"""Call SLURM's commands and parse their output."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from data_prep.errors import SesameError, UsageError
from pipeline.cluster import outside

# States of squeue in which a job runs or may still run.
LIVE = ("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING", "REQUEUED", "RESIZING",
        "REQUEUE_HOLD", "REQUEUE_FED", "SIGNALING", "STAGE_OUT", "STOPPED")  # fmt: skip
NEVER = "DependencyNeverSatisfied"  # reason given for a job that SLURM is about to cancel
FIELDS = "%F|%K|%T|%r|%N|%M"  # job, task of an array, state, reason, nodes, time


class Refused(SesameError):
    """A SLURM command failed."""


@dataclass(frozen=True)
class Task:
    """A job in the queue, or one task of an array; ended jobs stay listed for some minutes."""

    job: str
    number: str  # N/A if the job is not an array
    state: str
    reason: str
    nodes: str
    elapsed: str

    @property
    def is_live(self) -> bool:
        """True if it runs or may still run."""
        return self.state in LIVE and self.reason != NEVER


def require() -> None:
    """Raise a UsageError if SLURM's commands are missing."""
    if not outside.exists("sbatch"):
        raise UsageError(
            "sbatch is not on the path: run this on a login node of the SLURM cluster (perhaps "
            "after `module load slurm`), in a container through slurm/outside.sh, or use sesame "
            "run to work on this machine"
        )


def answers() -> bool:
    """Return True if SLURM's controller answers."""
    return outside.exists("squeue") and outside.run(["squeue", "--me"]).returncode == 0


def call(*command: str) -> str:
    """Run a command and return its output; raise Refused with its message if it fails."""
    try:
        done = outside.run(list(command))
    except FileNotFoundError as error:
        raise Refused(f"{command[0]}: is not on the path") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or [f"code {done.returncode}"]
        lines = [re.sub(rf"^{command[0]}: (error: )?", "", line) for line in said]
        raise Refused(f"{command[0]}: {'; '.join(lines)}")
    return done.stdout


def check_script(script: Path) -> None:
    """Raise Refused if SLURM would not accept a script (partition, account, limits).

    Queues nothing.
    """
    call("sbatch", "--test-only", str(script))


def submit_script(
    script: Path, after: list[str], array: str = "", condition: str = "afterok"
) -> str:
    """Queue a script that runs after all jobs in `after` have succeeded; return the job's id.

    With the condition `afterany` it runs when they have ended, well or not.
    """
    options = [f"--dependency={condition}:{':'.join(after)}"] if after else []
    options += [f"--array={array}"] if array else []
    said = call("sbatch", "--parsable", "--kill-on-invalid-dep=yes", *options, str(script))
    return said.strip().partition(";")[0]


def queue() -> dict[str, list[Task]]:
    """Return this user's jobs by id, each with its tasks; recently ended jobs are included."""
    said = call("squeue", "--me", "--noheader", "--array", "--states=all", f"--format={FIELDS}")
    found: dict[str, list[Task]] = {}
    for line in said.splitlines():
        task = Task(*line.split("|"))
        found.setdefault(task.job, []).append(task)
    return found


def count_queued() -> int:
    """Return the number of this user's jobs and tasks that run or may still run."""
    return sum(task.is_live for tasks in queue().values() for task in tasks)


def tasks_of(job: str, queue: dict[str, list[Task]]) -> list[Task]:
    """Return the tasks of a job in the queue, or the one task that `<job>_<number>` names."""
    whole, _, number = job.partition("_")
    return [task for task in queue.get(whole, []) if number in ("", task.number)]


def cancel_jobs(jobs: list[str]) -> None:
    """Cancel waiting or running jobs."""
    if jobs:
        call("scancel", *jobs)


def job_state(job: str) -> str:
    """Return the controller's current state of a job; "" if unknown."""
    found = re.search(r"JobState=(\w+)", call("scontrol", "show", "job", "--oneliner", job))
    return found[1] if found else ""


def dependants(job: str) -> dict[str, str]:
    """Return the jobs that wait for `job`, each with its dependency in scontrol's syntax."""
    found = {}
    for line in call("squeue", "--me", "--noheader", "--format=%i|%E").splitlines():
        waiting, _, dependency = line.partition("|")
        dependency = re.sub(r"\([^)]*\)", "", dependency)  # such as (unfulfilled)
        if re.search(rf"\b{job}\b", dependency):
            found[waiting] = dependency
    return found


def move_dependants(old: str, new: str) -> list[str]:
    """Make all jobs that wait for `old` wait for `new`; return their ids."""
    waiting = dependants(old)
    for job, dependency in waiting.items():
        moved = re.sub(rf"\b{old}\b", new, dependency)
        call("scontrol", "update", f"JobId={job}", f"Dependency={moved}")
    return list(waiting)


def hosts() -> set[str]:
    """Return the host names of the cluster's nodes."""
    return set(call("sinfo", "--Node", "--noheader", "--format=%n").split())


def most_gpus() -> dict[str, int]:
    """Return the most GPUs of a node by partition; the default partition is also listed as ""."""
    said = call("sinfo", "--noheader", "--format=%P|%G")
    found: dict[str, int] = {}
    for line in said.splitlines():
        partition, _, gres = line.partition("|")
        # Such as gpu:a100:4(S:0-1),gpu:a30:2 or (null)
        counts = re.findall(r"gpu:(?:[^:,(]+:)?(\d+)", gres)
        for name in (partition.rstrip("*"), *([""] if partition.endswith("*") else [])):
            found[name] = max([found.get(name, 0), *map(int, counts)])
    return found


def steps() -> outside.SlurmSteps:
    """Return what starts the ranks of this SLURM job."""
    return outside.SlurmSteps(first_node_address)


def first_node_address() -> str:
    """Return the address of this job's first node; its host name may not resolve."""
    nodes = call("scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]).split()
    found = re.search(r"NodeAddr=(\S+)", call("scontrol", "show", "node", nodes[0]))
    return found[1] if found else nodes[0]
