"""Kill a whole run at random moments until it gets through; it must equal an undisturbed one."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import Sesame

KILLS = 20


def contents(store: Path, stage: str) -> dict[str, bytes]:
    return {
        str(path.relative_to(store)): path.read_bytes()
        for path in sorted((store / stage).rglob("*"))
        if path.is_file() and path.name not in ("run.json", "timing.jsonl")
    }


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_a_run_killed_many_times_equals_an_undisturbed_one(
    smoke: Sesame, sesame: Sesame, seed: int
) -> None:
    draw = random.Random(seed)
    command = [sys.executable, "-m", "pipeline.commands.main", "run", "experiment=smoke"]
    for _ in range(KILLS):
        process = subprocess.Popen(
            command, cwd=sesame.folder, env=os.environ, stderr=subprocess.DEVNULL
        )
        time.sleep(draw.uniform(1, 40))
        process.send_signal(signal.SIGKILL)
        if process.wait() == 0:
            break
    sesame.succeed("run", "experiment=smoke")
    for stage in ("shard", "tokenizer", "examples", "export"):
        assert contents(sesame.store, stage) == contents(smoke.store, stage)
    (metrics,) = sesame.store.glob("pretrain/*/metrics.jsonl")
    (undisturbed,) = smoke.store.glob("pretrain/*/metrics.jsonl")
    assert metrics.read_bytes() == undisturbed.read_bytes()
