"""A rehearsal through SLURM: a job in every place, then two nodes that train and resume."""

import shutil
from pathlib import Path

import pytest

from pipeline.rehearse.page import TEXT
from tests.cluster.conftest import User

pytestmark = pytest.mark.cluster

TRAINING = (
    "experiment=smoke", "trainer.num_nodes=2", "trainer.devices=1", "trainer.strategy=zero2",
    "trainer.threads=1",
)  # fmt: skip


@pytest.fixture
def user(submitted: User, tmp_path: Path) -> User:
    """Somebody with the smoke recipe's data, about to train."""
    later = shutil.ignore_patterns("pretrain", "export", "finetune", "model", "report", "sub*")
    shutil.copytree(submitted.store, tmp_path / "store", ignore=later)
    return User(tmp_path, submitted.cluster)


def test_two_nodes_rehearse_after_a_job_in_every_place(user: User) -> None:
    user.site(time="00:10:00", stages={"finetune": {"partition": "gpu"}})
    before = sorted(path.name for path in user.store.iterdir())
    jobs = user.submit("--rehearse", *TRAINING)
    assert list(jobs) == ["place-01", "place-02", "rehearse"]
    states = user.wait(*jobs.values())
    logs = "".join(log.read_text() for log in user.store.glob("rehearsals/*-jobs/logs/*"))
    assert set(states.values()) == {"COMPLETED"}, logs
    (page,) = user.store.glob(f"rehearsals/*-page/{TEXT}")
    text = page.read_text()
    for answer in (
        "[good] A job runs in the default partition (shard, ",
        "[good] A job runs in partition gpu (finetune)",
        "[good] All ranks start and see the store: 2 of 2 ranks on ",
        "[good] Ranks exchange numbers",
        "[good] State read back equals state saved",
        "losses of 6 steps are bit-equal",
    ):
        assert answer in text
    assert str(page.with_name("index.html").relative_to(user.folder)) in logs
    assert sorted(path.name for path in user.store.iterdir()) == sorted([*before, "rehearsals"])
    assert not list(user.store.glob("rehearsals/.*"))


def test_a_partition_that_takes_no_job_is_refused_before_any_is_queued(user: User) -> None:
    user.site(time="00:10:00", stages={"finetune": {"partition": "nowhere"}})
    done = user("submit", "--rehearse", "experiment=smoke")
    assert done.returncode == 1
    assert "nowhere" in done.stderr or "partition" in done.stderr
    assert not list(user.store.glob("rehearsals/*"))
