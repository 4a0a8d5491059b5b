"""Pretraining on two nodes: whatever ends a job in the middle, the whole of it is bit-equal."""

import json
import sys
import time
from pathlib import Path

import pytest

from pipeline.cluster.frozen import Submission
from tests.cluster.conftest import User

pytestmark = pytest.mark.cluster

STEPS = 300
# A rank on each of two nodes, with DeepSpeed; a line of metrics a step.
TRAINING = (
    "experiment=smoke", f"trainer.max_steps={STEPS}", "trainer.checkpoint_every=60",
    "trainer.eval_every=75", "trainer.threads=1", "trainer.num_nodes=2", "trainer.devices=1",
    "trainer.strategy=zero2",
)  # fmt: skip
ONLY = ("--from", "pretrain", "--until", "pretrain")


def run_dir(user: User) -> Path:
    (folder,) = (user.store / "pretrain").iterdir()
    return folder


def steps(user: User) -> int:
    """Steps logged so far."""
    found = list((user.store / "pretrain").glob("*/metrics.jsonl"))
    return len(found[0].read_text().splitlines()) if found else 0


def wait_for_steps(user: User, wanted: int) -> None:
    deadline = time.monotonic() + 300
    while steps(user) < wanted:
        assert time.monotonic() < deadline, user.logs()
        time.sleep(0.05)


@pytest.fixture(scope="module")
def undisturbed(submitted: User, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The metrics of a run that nothing disturbs."""
    user = copied(submitted, tmp_path_factory.mktemp("undisturbed"))
    job = user.submit(*TRAINING, *ONLY)["01-pretrain"]
    assert user.wait(job) == {job: "COMPLETED"}, user.logs()
    manifest = json.loads((run_dir(user) / "manifest.json").read_text())
    assert manifest["counts"]["steps"] == STEPS
    (last,) = (run_dir(user) / "checkpoints").glob(f"{STEPS:08d}")
    assert len(list(last.glob("moments-*-of-00002.safetensors"))) == 2  # two ranks wrote
    return (run_dir(user) / "metrics.jsonl").read_bytes()


def copied(submitted: User, folder: Path) -> User:
    """Somebody with the smoke recipe's data, about to train."""
    for stage in ("shard", "tokenizer", "examples"):
        (folder / "store").mkdir(exist_ok=True)
        (folder / "store" / stage).symlink_to(submitted.store / stage)
    return User(folder, submitted.cluster)


@pytest.fixture
def trainer(submitted: User, tmp_path: Path) -> User:
    return copied(submitted, tmp_path)


def restarts(user: User, job: str) -> int:
    said = user.cluster.call("scontrol", "show", "job", job)
    return int(said.partition("Restarts=")[2].split()[0])


def test_a_requeued_job_ends_as_if_undisturbed(trainer: User, undisturbed: bytes) -> None:
    job = trainer.submit(*TRAINING, *ONLY)["01-pretrain"]
    wait_for_steps(trainer, 30)
    trainer.cluster.call("scontrol", "requeue", job)
    assert trainer.wait(job) == {job: "COMPLETED"}, trainer.logs()
    assert restarts(trainer, job) == 1
    assert "goes on from step" in trainer.logs()
    tracking = run_dir(trainer) / ".tracking"
    (run,) = tracking.glob("wandb/offline-run-*")  # the requeued launch told all of it again
    assert run.name.endswith((tracking / "id").read_text())
    assert (run_dir(trainer) / "metrics.jsonl").read_bytes() == undisturbed


def test_a_job_near_its_time_limit_requeues_itself_once(trainer: User, undisturbed: bytes) -> None:
    def limit(minutes: int) -> None:
        trainer.cluster.call("scontrol", "update", f"JobId={job}", f"TimeLimit={minutes}")

    trainer.site(time="600", signal=3600)
    # SLURM looks at limits twice a minute; a checkpoint a step makes training last longer.
    job = trainer.submit(*TRAINING, "trainer.checkpoint_every=1", *ONLY)["01-pretrain"]
    wait_for_steps(trainer, 30)
    limit(30)  # so less than an hour is left, and SLURM sends the signal
    deadline = time.monotonic() + 120
    while trainer.cluster.job_states(job)[job] != "PENDING":
        assert time.monotonic() < deadline, trainer.logs()
        time.sleep(0.1)
    limit(600)
    assert trainer.wait(job) == {job: "COMPLETED"}, trainer.logs()
    assert restarts(trainer, job) == 1
    assert trainer.logs().count("is requeued") == 1
    assert (run_dir(trainer) / "metrics.jsonl").read_bytes() == undisturbed


def test_without_requeueing_a_successor_takes_over(trainer: User, undisturbed: bytes) -> None:
    trainer.site(**{"continue": "chain"})
    jobs = trainer.submit(*TRAINING, "--from", "pretrain", "--until", "export")
    wait_for_steps(trainer, 30)
    trainer.cluster.call("scancel", "--signal=USR1", "--batch", jobs["01-pretrain"])
    assert trainer.wait(*jobs.values())[jobs["02-export"]] == "COMPLETED", trainer.logs()
    assert trainer.wait(jobs["01-pretrain"]) == {jobs["01-pretrain"]: "FAILED"}
    assert (run_dir(trainer) / "metrics.jsonl").read_bytes() == undisturbed
    (submission,) = (trainer.store / "submissions").iterdir()
    (successor,) = Submission(submission).successors().values()
    assert f"{successor} " in trainer.succeed("status").stdout


def test_four_chains_hand_over_at_the_same_time(submitted: User, tmp_path: Path) -> None:
    user = copied(submitted, tmp_path)
    user.site(**{"continue": "chain"})
    points = "optim.lr=1e-3,2e-3,3e-3,4e-3"
    words = ("pretrain", "-m", "experiment=smoke", points, "trainer.max_steps=200",
             "trainer.devices=1", "trainer.threads=1", "trainer.strategy=single")  # fmt: skip
    jobs = user.submit(*words)
    deadline = time.monotonic() + 200
    while len(list((user.store / "pretrain").glob("*/metrics.jsonl"))) < 4:
        assert time.monotonic() < deadline, user.logs()
        time.sleep(0.05)
    for job in jobs.values():
        user.cluster.call("scancel", "--signal=USR1", "--batch", job)
    assert set(user.wait(*jobs.values()).values()) == {"FAILED"}  # their successors go on
    (submission,) = (user.store / "submissions").iterdir()
    successors = Submission(submission).successors()
    assert sorted(successors) == sorted(jobs.values())
    assert set(user.wait(*successors.values()).values()) == {"COMPLETED"}, user.logs()
    said = user.succeed("status")
    assert said.stdout.count(" done ") == 4
    assert "Sweep of 4 points: held-out loss" in said.stderr


def test_in_a_container_slurm_is_called_from_outside(trainer: User, undisturbed: bytes) -> None:
    """A script plays the container: inside there is Python, but neither SLURM nor its settings."""
    inside = trainer.folder / "inside"
    inside.mkdir()
    scripts = {
        "python": f'#!/bin/bash\nexec "{sys.executable}" "$@"\n',
        "run": f'#!/bin/bash\nunset SLURM_CONF\nexport PATH="{inside}"\nexec "$@"\n',
    }
    for name, text in scripts.items():
        (inside / name).write_text(text)
        (inside / name).chmod(0o755)
    trainer.site(container=f"{inside}/run")
    job = trainer.submit(*TRAINING, *ONLY)["01-pretrain"]
    wait_for_steps(trainer, 30)
    trainer.cluster.call("scancel", "--signal=USR1", "--batch", job)
    assert trainer.wait(job) == {job: "COMPLETED"}, trainer.logs()
    # SLURM may end the job before it can print that it is requeued, so the log need not say so.
    assert restarts(trainer, job) == 1
    assert (run_dir(trainer) / "metrics.jsonl").read_bytes() == undisturbed


def test_a_cancelled_job_does_not_come_back(trainer: User) -> None:
    job = trainer.submit(*TRAINING, *ONLY)["01-pretrain"]
    wait_for_steps(trainer, 5)
    assert f"cancelled {job}" in trainer.succeed("cancel").stdout
    assert trainer.wait(job) == {job: "CANCELLED"}
    time.sleep(2)
    assert trainer.cluster.job_states(job) == {job: "CANCELLED"}
    again = trainer.submit(*TRAINING, *ONLY)
    assert trainer.wait(*again.values()) == {again["01-pretrain"]: "COMPLETED"}


def test_a_lost_node_costs_the_steps_since_the_last_checkpoint(
    trainer: User, undisturbed: bytes
) -> None:
    trainer.site(extra=["--nodelist=alpha"])
    one_node = [word.replace("num_nodes=2", "num_nodes=1") for word in TRAINING]
    two_ranks = [word.replace("devices=1", "devices=2") for word in one_node]
    cluster = trainer.cluster
    job = trainer.submit(*two_ranks, *ONLY)["01-pretrain"]
    wait_for_steps(trainer, 90)
    cluster.kill_node("alpha")  # its ranks go on, as orphans
    try:
        cluster.call("scontrol", "update", "NodeName=alpha", "State=DOWN", "Reason=lost")
        cluster.call("scontrol", "update", f"JobId={job}", "ReqNodeList=")
        assert trainer.wait(job) == {job: "COMPLETED"}, trainer.logs()
        assert restarts(trainer, job) == 1
        assert (run_dir(trainer) / "metrics.jsonl").read_bytes() == undisturbed
    finally:
        cluster.start_node("alpha")
        cluster.call("scontrol", "update", "NodeName=alpha", "State=RESUME")
