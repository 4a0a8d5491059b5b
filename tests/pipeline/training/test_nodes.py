"""Several nodes without SLURM: variables, and two launches on loopback that train as one run."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from data_prep.errors import UsageError
from data_prep.work_units import usable_cores
from pipeline.training.config import TrainerConfig
from pipeline.training.environment import free_port
from pipeline.training.nodes import Placement, placement
from tests.conftest import Sesame

NAMES = (
    "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "PET_NODE_RANK", "GROUP_RANK", "RANK", "WORLD_SIZE",
    "LOCAL_WORLD_SIZE", "SLURM_JOB_ID", "TORCHELASTIC_USE_AGENT_STORE",
)  # fmt: skip
TRAINER = TrainerConfig(strategy="ddp", num_nodes=2, devices=4)


def place(monkeypatch: pytest.MonkeyPatch, **given: str) -> Placement | None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return placement(TRAINER)


@pytest.mark.parametrize(
    "given",
    [
        {"NODE_RANK": "1", "WORLD_SIZE": "2"},
        {"NODE_RANK": "1", "WORLD_SIZE": "8"},
        {"RANK": "1", "WORLD_SIZE": "2"},  # PyTorchJob
        {"PET_NODE_RANK": "1"},  # PyTorchJob, elastic
        {"GROUP_RANK": "1", "RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"},  # torchrun
    ],
)
def test_the_node_is_known_by_the_usual_variables(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = place(monkeypatch, MASTER_ADDR="first", MASTER_PORT="2345", **given)
    assert found == Placement(1, 2, "first", 2345, False)


def test_who_opens_the_meeting(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"MASTER_ADDR": "first", "NODE_RANK": "0"}
    assert place(monkeypatch, **given) == Placement(0, 2, "first", 29500, True)
    agent = place(monkeypatch, **given, TORCHELASTIC_USE_AGENT_STORE="True")
    assert agent is not None and not agent.is_server  # torchrun has opened it
    assert place(monkeypatch, **given, SLURM_JOB_ID="7") is None
    assert place(monkeypatch) is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "NODE_RANK=: must be this node's number, 0 to 1"),
        ({"NODE_RANK": "2"}, "NODE_RANK=2: must be this node's number, 0 to 1"),
        ({"NODE_RANK": "1", "WORLD_SIZE": "3"}, "WORLD_SIZE=3: contradicts trainer.num_nodes=2"),
        ({"RANK": "1", "LOCAL_WORLD_SIZE": "4"}, "start sesame once per node"),
    ],
)
def test_contradicting_variables_are_named(
    given: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError) as error:
        place(monkeypatch, MASTER_ADDR="first", **given)
    assert says in str(error.value)


class TwoNodes:
    """A folder in which `sesame pretrain` is started once per node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "store"

    def start(self, node: int, port: int) -> subprocess.Popen[str]:
        variables = {
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2",
            "NODE_RANK": str(node),
        }  # fmt: skip
        words = (
            "pretrain", "experiment=smoke", "trainer.num_nodes=2", "trainer.devices=1",
            f"trainer.threads={max(1, usable_cores() // 2)}",  # as two ranks on one machine have
        )  # fmt: skip
        return subprocess.Popen(
            [sys.executable, "-m", "pipeline.commands.main", *words],
            cwd=self.folder, env=os.environ | variables, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def start_both(self) -> list[subprocess.Popen[str]]:
        port = free_port()
        return [self.start(node, port) for node in (0, 1)]

    def metrics(self) -> bytes:
        (path,) = (self.store / "pretrain").glob("*/metrics.jsonl")
        return path.read_bytes()


def test_two_launches_train_as_one_run_though_one_is_killed(smoke: Sesame, tmp_path: Path) -> None:
    """Takes some 25 s: four launches of two processes that import torch."""
    nodes = TwoNodes(tmp_path)
    nodes.store.mkdir()
    for stage in ("shard", "tokenizer", "examples"):
        shutil.copytree(smoke.store / stage, nodes.store / stage)
    first, second = nodes.start_both()
    while not list((nodes.store / "pretrain").glob("*/checkpoints/0*")):
        assert first.poll() is None and second.poll() is None
        time.sleep(0.02)
    second.kill()
    second.wait()
    said, _ = first.communicate()
    assert first.returncode == 1, said
    assert "run the same command to go on" in said

    for process in nodes.start_both():
        said, _ = process.communicate()
        assert process.returncode == 0, said
    (reference,) = (smoke.store / "pretrain").glob("*/metrics.jsonl")
    assert nodes.metrics() == reference.read_bytes()  # two ranks there too, on one machine
    assert len(list((nodes.store / "pretrain").glob("*/manifest.json"))) == 1
