"""A cluster's limits on arrays and queued jobs, as SLURM and its accounting state them.

Unknown limits are None: many clusters, and most test installations, have no accounting.
"""

import getpass
import re
from collections.abc import Iterator
from dataclasses import dataclass

from data_prep.errors import UsageError
from pipeline.cluster import slurm
from pipeline.cluster.planning import Planned
from pipeline.cluster.site import Site, site_path


@dataclass(frozen=True)
class Limits:
    """The largest array, and the most jobs of a user in the queue (each task counts as one)."""

    array: int | None = None
    queued: int | None = None


def read_limits(site: Site) -> Limits:
    """Ask SLURM for the limits of the site's account and quality of service."""
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", slurm.call("scontrol", "show", "config"), re.M)
    array = int(found[1]) if found else 0
    return Limits(array or None, _most_queued(site))


def _most_queued(site: Site) -> int | None:
    """Return the smallest MaxSubmitJobs that holds for this user; None without accounting."""
    show = ("sacctmgr", "--noheader", "--parsable2", "show")
    user = f"user={getpass.getuser()}"
    try:
        associations = slurm.call(*show, "assoc", user, "format=Account,QOS,MaxSubmitJobs")
        qualities = slurm.call(*show, "qos", "format=Name,MaxSubmitJobsPU")
    except slurm.Refused:
        return None
    return smallest_limit(associations, qualities, site)


def smallest_limit(associations: str, qualities: str, site: Site) -> int | None:
    """Return the smallest limit in the output of sacctmgr that concerns this site's jobs.

    `associations`: lines `account|qos|limit`. `qualities`: lines `name|limit`.
    """
    return min([*_of_accounts(associations, site), *_of_qualities(qualities, site)], default=None)


def _of_accounts(lines: str, site: Site) -> Iterator[int]:
    for line in lines.splitlines():
        account, _, limit = line.split("|")
        if limit and site.account in (None, account):
            yield int(limit)


def _of_qualities(lines: str, site: Site) -> Iterator[int]:
    for line in lines.splitlines():
        name, limit = line.split("|")
        if limit and name == (site.qos or "normal"):  # normal: SLURM's default
            yield int(limit)


def check_limits(planned: list[Planned], limits: Limits, queued: int) -> None:
    """Raise a UsageError if the user's queue, with `queued` jobs, cannot hold the planned ones."""
    wanted = sum(job.tasks for job in planned)
    if limits.queued is None or wanted + queued <= limits.queued:
        return
    outputs = sum(len(job.nodes) for job in planned if not job.shares)
    remedies = ["--until submits a part"]
    if wanted > outputs:
        remedies.insert(0, f"lower array in {site_path()}")
    raise UsageError(
        f"these are {wanted} jobs, and {queued} are in the queue, but SLURM allows a user "
        f"{limits.queued} (MaxSubmitJobs); {', or '.join(remedies)}; the same line later submits "
        "what is missing"
    )
