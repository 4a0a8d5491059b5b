"""A fine-tuning that is told to leave is requeued, and ends as if undisturbed."""

import shutil
import time
from pathlib import Path

import pytest

from tests.cluster.conftest import User

pytestmark = pytest.mark.cluster

# A checkpoint per step makes it last.
WORDS = (
    "finetune", "-m", "experiment=smoke", "encoder=smoke", "task=polarity", "name=mine",
    "finetune.seed=7", "finetune.epochs=80", "finetune.eval_every=5",
    "finetune.checkpoint_minutes=0",
)  # fmt: skip


def with_encoder(submitted: User, folder: Path) -> User:
    shutil.copytree(submitted.store, folder / "store", ignore=shutil.ignore_patterns("sub*"))
    return User(folder, submitted.cluster)


def journal(user: User, before: set[str]) -> bytes:
    """The journal of the new fine-tuning; empty if it has none yet."""
    found = user.store.glob("finetune/*/.tracking/metrics.jsonl")
    new = [path for path in found if path.parents[1].name not in before]
    return new[0].read_bytes() if new else b""


def test_a_fine_tuning_told_to_leave_goes_on_to_the_bit(submitted: User, tmp_path: Path) -> None:
    before = {path.name for path in submitted.store.glob("finetune/*")}
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    whole = with_encoder(submitted, tmp_path / "whole")
    jobs = whole.submit(*WORDS)
    user = with_encoder(submitted, tmp_path / "parts")
    [job] = user.submit(*WORDS).values()
    deadline = time.monotonic() + 200
    while not journal(user, before):
        assert time.monotonic() < deadline, user.logs()
        time.sleep(0.05)
    user.cluster.call("scancel", "--signal=USR1", "--batch", job)
    assert user.wait(job) == {job: "COMPLETED"}, user.logs()
    assert set(whole.wait(*jobs.values()).values()) == {"COMPLETED"}, whole.logs()
    assert user.logs().count("is requeued") == 1
    assert user.logs().count("goes on from step") == 1
    assert journal(user, before) == journal(whole, before)
