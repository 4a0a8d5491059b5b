"""Fine-tunings that run beside each other save on a request to stop, as each would alone."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from data_prep.vectors.table import VectorTable
from pipeline.stages.tracked import TRAINING
from pipeline.store.checkpoints import CHECKPOINTS, checkpoints

PROGRAM = """
import os, sys
from dataclasses import replace
from pathlib import Path
from pipeline.commands.signals import stop_on_signals
from pipeline.config.schema import Config
from pipeline.stages import STAGES
from pipeline.store.outputs import Store
from pipeline.tasks.config import FinetuneConfig, TaskConfig
from pipeline.workflow.execute import execute_all
from pipeline.workflow.graph import Graph

if __name__ == "__main__":
    folder, engine, epochs = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    task = TaskConfig(name="toy", data_dir=str(folder), train="train.tsv")
    tuning = FinetuneConfig(
        epochs=epochs, batch_size=16, max_seq_length=8, accelerator="cpu", engine=engine
    )
    graph = Graph(Store(folder / "store"), STAGES)
    for seed in (1, 2):
        own = replace(tuning, seed=seed)
        vectors = str(folder / "vectors")
        graph.add("finetune", Config(encoder=vectors, task=task, finetune=own, keep=False))
    with stop_on_signals():
        execute_all(list(graph.nodes.values()), at_once=2)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "vectors").mkdir()
    VectorTable(["good", "bad"], np.eye(2, dtype=np.float32)).write(tmp_path / "vectors")
    rows = [f"good film\t1\nbad film {n}\t0" for n in range(40)]
    (tmp_path / "train.tsv").write_text("\n".join(["sentence\tlabel", *rows, ""]))
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def start(folder: Path, engine: str, epochs: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(folder / "program.py"), str(folder), engine, str(epochs)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def wait_for_training(folder: Path, process: subprocess.Popen[str]) -> list[Path]:
    """Return both outputs once both train."""
    deadline = time.monotonic() + 120
    while True:
        journals = list(folder.glob("store/finetune/*/.tracking/metrics.jsonl"))
        if len([each for each in journals if each.stat().st_size]) == 2:
            return [each.parents[1] for each in journals]
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("number", "to_group", "engine"),
    [
        (signal.SIGUSR1, False, "plain"),
        (signal.SIGINT, True, "plain"),  # a terminal's Ctrl-C reaches all
        (signal.SIGUSR1, True, "ranks"),
    ],
    ids=["USR1", "Ctrl-C", "ranks"],
)
def test_both_save_on_a_request_to_stop_and_go_on(
    number: signal.Signals, to_group: bool, engine: str, folder: Path
) -> None:
    """Half a minute on two cores: processes import torch, and ranks Lightning."""
    epochs = 300
    process = start(folder, engine, epochs)
    outs = wait_for_training(folder, process)
    (os.killpg if to_group else os.kill)(process.pid, number)
    said, _ = process.communicate(timeout=90)
    assert process.returncode != 0 and f"Stopped: {int(number)}" in said
    steps = [int(checkpoints(out / TRAINING / CHECKPOINTS)[-1].name) for out in outs]
    assert all(0 < step < 4 * epochs for step in steps)
    if engine == "ranks":  # resumed as any other, see stages/test_finetune_loops
        return
    process = start(folder, engine, epochs)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    for out, step in zip(outs, steps, strict=True):
        assert f"goes on from step {step:,}" in said
        assert json.loads((out / "scores.json").read_text())["steps"] > step
