"""Limits from outputs in the documented format; the SLURM of the tests has no accounting."""

from pathlib import Path

import pytest

from data_prep.errors import UsageError
from pipeline.cluster import slurm
from pipeline.cluster.limits import Limits, check_limits, read_limits, smallest_limit
from pipeline.cluster.planning import plan_jobs
from pipeline.cluster.site import Site
from tests.pipeline.cluster.test_planning import graph_of

# sacctmgr --noheader --parsable2 show assoc user=… format=Account,QOS,MaxSubmitJobs
ASSOCIATIONS = "nlp|normal,long|200\nteaching|normal|20\nguest|normal|\n"
# sacctmgr --noheader --parsable2 show qos format=Name,MaxSubmitJobsPU
QUALITIES = "normal|\nlong|50\ndebug|2\n"


@pytest.mark.parametrize(
    ("site", "limit"),
    [
        (Site(), 20),  # the account is not known, so the smallest holds
        (Site(account="nlp"), 200),
        (Site(account="nlp", qos="long"), 50),
        (Site(account="guest"), None),
        (Site(account="guest", qos="debug"), 2),
    ],
)
def test_the_limit_of_the_account_and_quality_of_service(site: Site, limit: int | None) -> None:
    assert smallest_limit(ASSOCIATIONS, QUALITIES, site) == limit


def test_limits_without_accounting(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(*command: str) -> str:
        if command[0] == "sacctmgr":
            raise slurm.Refused(
                "sacctmgr: You are not running a supported accounting_storage plugin"
            )
        return "MaxArraySize            = 1001\nMaxJobCount             = 10000\n"

    monkeypatch.setattr(slurm, "call", call)
    assert read_limits(Site()) == Limits(1001, None)


def test_more_jobs_than_the_queue_takes_are_refused_at_once(tmp_path: Path) -> None:
    planned = plan_jobs(list(graph_of(tmp_path).nodes.values()), Site(array=8), {})
    count = sum(job.tasks for job in planned)
    check_limits(planned, Limits(queued=count + 5), 5)
    check_limits(planned, Limits(), 100_000)
    with pytest.raises(UsageError) as error:
        check_limits(planned, Limits(queued=count + 4), 5)
    assert f"these are {count} jobs, and 5 are in the queue" in str(error.value)
    assert "lower array in site.yaml, or --until submits a part" in str(error.value)
