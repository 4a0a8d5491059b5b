"""A sweep's points, read back from a server: one group, one name each."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

from pipeline.commands.sweep import on_dashboards
from pipeline.config.schema import Config
from pipeline.tracking.config import TrackingConfig
from pipeline.tracking.tracker import Tracker
from pipeline.tracking.training import Training
from tests.pipeline.wandb_server import WandbServer


def test_two_by_three_points_are_six_runs_of_one_group(tmp_path: Path, server: WandbServer) -> None:
    said: list[str] = []
    expected = {}
    for number, (lr, seed) in enumerate(product((1e-4, 2e-4), (1, 2, 3))):
        settings = [f"finetune.lr={lr:g}", f"finetune.seed={seed}"]
        base = Config(name="mine", tracking=TrackingConfig(mode="online"))
        config = on_dashboards(base, "2026-11-18_09-00-00", settings)
        training = Training.in_folder("mine", tmp_path / "finetune" / f"{number:016x}")
        training.output.begin(
            {"stage": "finetune", "config": {"finetune": {"lr": lr}}, "upstream": {}}
        )
        tracker = Tracker(config.tracking, training, 0, said.append)
        tracker.log({"step": 7, "loss": 0.5, "dev_f1": number / 10})
        tracker.close()
        expected[f"lr={lr:g}, seed={seed}"] = number / 10
    assert said == []
    calls = server.named("UpsertBucket")  # a later call of a run has no name
    sent = {each["displayName"]: each for each in calls if each["displayName"] is not None}
    assert sent.keys() == expected.keys()
    assert {each["groupName"] for each in sent.values()} == {"2026-11-18_09-00-00"}
    assert {each["jobType"] for each in sent.values()} == {"finetune"}
    rows = [files["wandb-history.jsonl"] for files in server.by_run.values()]
    found = [json.loads(line)["dev_f1"] for lines in rows for line in lines.values()]
    assert sorted(found) == sorted(expected.values())


def test_a_users_own_name_and_group_win_in_a_sweep() -> None:
    own = TrackingConfig(label="best", group="letters")
    tracking = on_dashboards(replace(Config(), tracking=own), "sweep", ["a=1"]).tracking
    assert (tracking.label, tracking.group) == ("best", "letters")
