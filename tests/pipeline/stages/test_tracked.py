"""Every fine-tuning is a run: a journal always, dashboards where they are asked for."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from data_prep.vectors.table import VectorTable
from pipeline.config.schema import Config
from pipeline.stages.finetune import Finetune
from pipeline.stages.tracked import live
from pipeline.tasks.config import FinetuneConfig, TaskConfig
from pipeline.tracking.config import TrackingConfig
from pipeline.tracking.training import Training
from pipeline.workflow.stage import Work


@pytest.fixture
def work(tmp_path: Path) -> Work:
    rng = np.random.default_rng(0)
    vectors = tmp_path / "vectors"
    vectors.mkdir()
    VectorTable(["good", "bad"], np.eye(2, dtype=np.float32)).write(vectors)
    words = [rng.choice(["good", "bad", "film"], size=4) for _ in range(60)]
    rows = [f"{' '.join(each)}\t{int('good' in each)}" for each in words]
    (tmp_path / "train.tsv").write_text("\n".join(["sentence\tlabel", *rows, ""]))
    task = TaskConfig(name="toy", data_dir=str(tmp_path), train="train.tsv", labels=["0", "1"])
    tuning = FinetuneConfig(epochs=2, max_seq_length=8, accelerator="cpu", seed=3)
    config = Config(name="mine", encoder="glove", task=task, finetune=tuning)
    out = tmp_path / "store" / "finetune" / "ab"
    request = {
        "stage": "finetune", "config": {"task": {"name": "toy", "labels": ["secret"]}},
        "upstream": {},
    }  # fmt: skip
    Training.in_folder("mine", out).output.begin(request)
    return Work(config, {"encoder": vectors}, out, "ab")


def test_a_fine_tuning_keeps_its_curves(work: Work) -> None:
    told: list[tuple[int, float]] = []
    for _ in range(2):  # a second launch starts from the beginning
        told.clear()
        Finetune().run(replace(work, report=lambda epoch, score: told.append((epoch, score))))
    training = Training.in_folder("mine", work.out)
    rows = list(training.rows())
    assert [numbers["epoch"] for _, numbers in rows] == [1, 2]
    assert told == [(int(n["epoch"]), n["dev_accuracy"]) for _, n in rows]
    for _, numbers in rows:
        assert numbers["loss"] > 0 and 0 <= numbers["learning_rate"] <= work.config.finetune.lr
    scores = json.loads((work.out / "scores.json").read_text())
    assert rows[-1][0] == scores["steps"]
    assert rows[-1][1]["test_accuracy"] == scores["score"]
    assert [path.name for path in training.folder.iterdir()] == ["metrics.jsonl"]


def test_dashboards_are_told_while_it_trains(work: Work) -> None:
    tracking = TrackingConfig(loggers=["csv", "wandb"])
    config = replace(work.config, tracking=tracking)
    Finetune().run(replace(work, config=config))
    with open(work.out / ".tracking" / "csv" / "metrics.csv") as stream:
        rows = list(csv.DictReader(stream))
    assert [float(row["epoch"]) for row in rows] == [1, 2]
    assert float(rows[-1]["test_accuracy"]) >= 0
    shown = "".join(path.read_text() for path in (work.out / ".tracking" / "csv").iterdir())
    assert "toy" in shown and "secret" not in shown  # labels are private
    assert not (work.out / ".tracking" / "wandb").exists()  # offline: sesame sync makes it


@pytest.mark.parametrize(
    ("tracking", "loggers", "label"),
    [
        (TrackingConfig(), [], "toy, glove, seed=3"),
        (TrackingConfig(mode="online"), ["wandb"], "toy, glove, seed=3"),
        (TrackingConfig(mode="disabled"), [], "toy, glove, seed=3"),
        (TrackingConfig(mode="online", label="lr=0.1"), ["wandb"], "lr=0.1"),
    ],
)
def test_a_fine_tuning_is_named_by_task_encoder_and_seed(
    tracking: TrackingConfig, loggers: list[str], label: str, work: Work
) -> None:
    shown = live(replace(work, config=replace(work.config, tracking=tracking)))
    assert (shown.loggers, shown.label) == (loggers, label)
