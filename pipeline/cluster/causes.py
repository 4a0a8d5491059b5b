"""Why a job ended, in one word of ours with the remedy.

SLURM's queue knows a job for some minutes after its end. Later `sacct` tells the state where the
cluster has accounting. Otherwise the job's own log does: SLURM's daemons write the reason there.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.cluster import slurm

GOES_ON = "submit the same line again; it goes on from what is finished"


@dataclass(frozen=True)
class Cause:
    """A reason for which SLURM ended a job."""

    name: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.name}: {self.remedy}"


OUT_OF_MEMORY = Cause(
    "out of memory",
    "raise memory in the site file, or lower trainer.micro_batch_size, corpus.memory or "
    "finetune.batch_size; then submit the same line again",
)
TIME_LIMIT = Cause(
    "time limit",
    "raise time in the site file, or use continue: requeue or chain with a longer signal; then "
    "submit the same line again",
)
NODE_FAILURE = Cause("node failure", GOES_ON)
PREEMPTED = Cause("preempted", f"{GOES_ON}, or choose a qos that is not preempted")
CANCELLED = Cause("cancelled", GOES_ON)
NOT_STARTED = Cause("cancelled", "a job that it waits for did not succeed; see there")

# SLURM's states of ended jobs. The base state stands first, as in `CANCELLED by 1000`.
BY_STATE = {
    "OUT_OF_MEMORY": OUT_OF_MEMORY,
    "TIMEOUT": TIME_LIMIT,
    "DEADLINE": TIME_LIMIT,
    "NODE_FAIL": NODE_FAILURE,
    "BOOT_FAIL": NODE_FAILURE,
    "PREEMPTED": PREEMPTED,
    "CANCELLED": CANCELLED,
    "REVOKED": CANCELLED,
}
# Sentences of slurmstepd and srun in a job's log; the first that is found decides.
BY_SENTENCE = (
    (re.compile(r"oom[-_ ]?kill|Out Of Memory", re.I), OUT_OF_MEMORY),
    (re.compile(r"CANCELLED AT \S+ DUE TO TIME LIMIT"), TIME_LIMIT),
    (re.compile(r"CANCELLED AT \S+ DUE TO PREEMPTION"), PREEMPTED),
    (re.compile(r"CANCELLED AT \S+ DUE TO (JOB REQUEUE AND )?NODE FAIL"), NODE_FAILURE),
    (re.compile(r"Node failure on \S+"), NODE_FAILURE),
    (re.compile(r"CANCELLED AT \S+ \*\*\*"), CANCELLED),
)
FROM_DAEMON = re.compile(r"^(slurmstepd|srun|slurmd)[-\w]*: ")
STARTS = "job starts: "  # begins the first line that `sesame job` writes to the log


def cause_of_state(state: str) -> Cause | None:
    """Return the cause for a state of squeue or sacct; None for a failure of the job itself."""
    return BY_STATE.get(state.split(maxsplit=1)[0].rstrip("+")) if state else None


def cause_in_log(text: str) -> Cause | None:
    """Return the cause that SLURM's daemons wrote to a log since the job's last start, or None."""
    last_start = text.rpartition(STARTS)[2]
    said = [line for line in last_start.splitlines() if FROM_DAEMON.match(line)]
    for pattern, cause in BY_SENTENCE:
        if any(pattern.search(line) for line in said):
            return cause
    return None


def accounted(jobs: Iterable[str]) -> dict[str, str]:
    """Return sacct's states of ended jobs, by job or `<job>_<task>`; empty without accounting."""
    wanted = ",".join(sorted({job.partition("_")[0] for job in jobs}))
    if not wanted:
        return {}
    try:
        said = slurm.call(
            "sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={wanted}",
            "--format=JobID,State",
        )  # fmt: skip
    except slurm.Refused:
        return {}
    return parse_accounted(said)


def parse_accounted(said: str) -> dict[str, str]:
    """Parse lines `<job>|<state>` of sacct; pending tasks of an array (`7_[2-5]`) are left out."""
    rows = (line.split("|") for line in said.splitlines() if "|" in line)
    return {row[0]: row[1] for row in rows if "[" not in row[0]}
