"""Fine-tunings that run beside each other save on a request to stop, as each would alone."""

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
from pipeline.store.journal import read_lines

OUTPUTS = "store/finetune/*"
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
    folder, engine = Path(sys.argv[1]), sys.argv[2]
    task = TaskConfig(name="toy", data_dir=str(folder), train="train.tsv")
    tuning = FinetuneConfig(
        epochs=5000, batch_size=16, max_seq_length=8, accelerator="cpu", engine=engine
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


def start(folder: Path, engine: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(folder / "program.py"), str(folder), engine],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def wait_for_training(
    folder: Path, process: subprocess.Popen[str], beyond: dict[Path, int]
) -> None:
    """Return once both have written a line of their journal, after the steps `beyond`."""
    deadline = time.monotonic() + 120
    while True:
        journals = {path.parents[1]: path for path in folder.glob(f"{OUTPUTS}/.tracking/*.jsonl")}
        steps = {out: [line["step"] for line in read_lines(path)] for out, path in journals.items()}
        if sum(max(own, default=0) > beyond.get(out, 0) for out, own in steps.items()) == 2:
            return
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("number", "to_group", "engine", "starts"),
    [
        (signal.SIGUSR1, False, "plain", 2),
        (signal.SIGINT, True, "plain", 1),  # a terminal's Ctrl-C reaches all
        (signal.SIGUSR1, True, "ranks", 1),
    ],
    ids=["USR1", "Ctrl-C", "ranks"],
)
def test_both_save_on_a_request_to_stop_and_go_on(
    number: signal.Signals, to_group: bool, engine: str, starts: int, folder: Path
) -> None:
    """Some seconds per start: processes import torch, and ranks Lightning."""
    saved: dict[Path, int] = {}
    for _ in range(starts):
        process = start(folder, engine)
        try:
            wait_for_training(folder, process, saved)
            (os.killpg if to_group else os.kill)(process.pid, number)
            said, _ = process.communicate(timeout=90)
        finally:
            process.kill()
        assert process.returncode != 0 and f"Stopped: {int(number)}" in said
        assert all(f"goes on from step {step:,}" in said for step in saved.values())
        before = saved
        saved = {
            out: int(checkpoints(out / TRAINING / CHECKPOINTS)[-1].name)
            for out in folder.glob(OUTPUTS)
        }
        assert len(saved) == 2 and all(step > before.get(out, 0) for out, step in saved.items())
