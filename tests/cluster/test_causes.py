"""Why jobs ended, as a real SLURM tells it: time limit, lost node, cancelled.

This SLURM has neither cgroups nor accounting. Causes that need them (out of memory, sacct) are
tested with recorded outputs in tests/pipeline/cluster/test_status.py.
"""

import re
import time
from pathlib import Path

import pytest

from pipeline.cluster.causes import CANCELLED, TIME_LIMIT, cause_in_log
from tests.cluster.conftest import User
from tests.cluster.test_submit import SMALL
from tests.test_data_stages import write_texts

pytestmark = pytest.mark.cluster

SHARD = (*SMALL, "--until", "shard")
# Instead of an environment to activate.
WAIT = "trap '' USR1; echo waiting; while :; do sleep 0.2; done"


def held_up(cluster_user: User, folder: Path, **settings: object) -> User:
    """Return a user whose job runs and does nothing."""
    folder.mkdir()
    write_texts(folder / "texts")
    user = User(folder, cluster_user.cluster)
    user.site(array=1, activate=WAIT, **{"continue": "chain"}, **settings)
    return user


def submit_and_see_it_run(user: User) -> str:
    job = user.submit(*SHARD)["01-shard"]
    deadline = time.monotonic() + 60
    while "waiting" not in user.logs():
        assert time.monotonic() < deadline, user.cluster.job_states(job)
        time.sleep(0.1)
    return job


def status(user: User) -> str:
    said = user.succeed("status").stdout
    return " ".join(said.split())


def test_each_end_is_named_with_its_remedy(user: User) -> None:
    """Takes a minute and a half: SLURM knows no shorter limit, and looks twice a minute."""
    limited = held_up(user, user.folder / "limited", time="1")
    job = submit_and_see_it_run(limited)

    cancelled = held_up(user, user.folder / "cancelled")
    other = submit_and_see_it_run(cancelled)
    cancelled.cluster.call("scancel", other)
    cancelled.wait(other)
    assert re.search(rf"01-shard {other} cancelled .*cancelled: submit the same", status(cancelled))
    assert cause_in_log(cancelled.logs()) == CANCELLED

    lost = held_up(user, user.folder / "lost", partition="gpu")
    gone = submit_and_see_it_run(lost)
    lost.cluster.kill_node("gamma")
    try:
        lost.cluster.call("scontrol", "update", "NodeName=gamma", "State=DOWN", "Reason=lost")
        assert lost.wait(gone) == {gone: "NODE_FAIL"}
        assert re.search(rf"01-shard {gone} failed .*node failure: submit the same", status(lost))
    finally:
        lost.cluster.start_node("gamma")
        lost.cluster.call("scontrol", "update", "NodeName=gamma", "State=RESUME")

    assert limited.wait(job) == {job: "TIMEOUT"}
    assert re.search(rf"01-shard {job} failed .*time limit: raise time in the", status(limited))
    assert cause_in_log(limited.logs()) == TIME_LIMIT  # for when SLURM has forgotten the job
    assert "waiting" in limited.succeed("logs", "shard").stdout
