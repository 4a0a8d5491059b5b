"""Fine-tunings and sweep points are runs too, and rows wait for their checkpoint."""

import csv
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import wandb

from pipeline.commands.sweeps import in_sweep
from pipeline.commands.sync import later_trainings, name_of
from pipeline.config.schema import Config
from pipeline.stages.tracked import track
from pipeline.store.outputs import Output, Store
from pipeline.tracking.config import TrackingConfig
from pipeline.tracking.tracker import covered
from pipeline.tracking.wandb_settings import private_settings
from pipeline.workflow.stage import Work
from tests.pipeline.wandb_server import WandbServer, wandb_server

LINES = [{"step": 10, "loss": 0.5, "lr": 1e-4}, {"step": 10, "epoch": 1, "dev_f1": 0.7}]


def begun(store: Store, fingerprint: str, stage: str = "finetune") -> Output:
    output = store.output(stage, fingerprint)
    output.begin(
        {"stage": stage, "format": 6, "config": {"finetune": {"lr": 1e-4}}, "upstream": {},
         "files_read": {}}
    )  # fmt: skip
    (output.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return output


def test_rows_wait_for_a_checkpoint_that_covers_them() -> None:
    newest = iter([0, 0, 2, 2, 4])  # the checkpoint that is there after each row, and at the end
    rows = [(step, {"loss": 1.0}) for step in (1, 2, 3, 5)]
    assert [step for step, _ in covered(rows, lambda: next(newest))] == [1, 2, 3]


def test_a_finished_training_is_a_run_of_csv(tmp_path: Path) -> None:
    output = begun(Store(tmp_path), "ab" * 8)
    config = Config(name="mine", tracking=TrackingConfig(loggers=["csv", "wandb"]))
    track(Work(config, {}, output.path, output.fingerprint), "sst2 mine seed 1", {"f1": 0.7})
    with open(output.path / ".tracking" / "csv" / "metrics.csv") as stream:
        (row,) = csv.DictReader(stream)
    assert (row["step"], float(row["loss"]), float(row["dev_f1"])) == ("10", 0.5, 0.7)
    assert not (output.path / ".tracking" / "wandb").exists()  # offline: sesame sync makes it


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WandbServer]:
    wandb.teardown()
    with wandb_server() as running:
        monkeypatch.setenv("WANDB_BASE_URL", running.address)
        monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
        yield running
    wandb.teardown()


def test_a_sweep_of_two_by_three_is_six_runs_of_one_group(
    tmp_path: Path, server: WandbServer
) -> None:
    store = Store(tmp_path)
    base = Config(name="mine", tracking=TrackingConfig(mode="online"))
    expected = {}
    for number, (lr, seed) in enumerate(product(("1e-4", "2e-4"), (1, 2, 3))):
        settings = [f"finetune.lr={lr}", f"finetune.seed={seed}"]
        config = in_sweep(base, "2026-11-18_09-00-00", settings)
        output = begun(store, f"{number:016x}")
        track(Work(config, {}, output.path, output.fingerprint), "sst2", {"f1": number / 10})
        expected[", ".join(settings)] = number / 10
    calls = server.named("UpsertBucket")  # a later call of a run has no name
    sent = {each["displayName"]: each for each in calls if each["displayName"] is not None}
    assert sent.keys() == expected.keys()
    assert {each["groupName"] for each in sent.values()} == {"2026-11-18_09-00-00"}
    assert {each["jobType"] for each in sent.values()} == {"finetune"}
    assert len(server.by_run) == 6
    assert all(len(files["wandb-history.jsonl"]) == 1 for files in server.by_run.values())
    summaries = [files["wandb-summary.json"] for files in server.by_run.values()]
    found = sorted(json.loads(each[max(each)])["f1"] for each in summaries)
    assert found == sorted(expected.values())


def test_a_users_own_name_and_group_win_in_a_sweep() -> None:
    own = TrackingConfig(name="best", group="letters")
    tracking = in_sweep(Config(tracking=own), "sweep", ["a=1"]).tracking
    assert (tracking.name, tracking.group) == ("best", "letters")


def test_system_and_code_are_recorded_only_where_asked() -> None:
    settings = private_settings(TrackingConfig(), 1.0, 1.0)
    assert settings.x_disable_stats and settings.disable_git and settings.disable_code
    asked = private_settings(TrackingConfig(system=True, code=True), 1.0, 1.0)
    assert not asked.x_disable_stats and not asked.disable_git and asked.disable_code


def test_sync_finds_the_fine_tunings_of_a_pretraining(tmp_path: Path) -> None:
    store = Store(tmp_path)
    pretraining = begun(store, "11" * 8, "pretrain")
    facts = {"name": "mine", "versions": {}}
    pretraining.finish(pretraining.request(), {"steps": 3}, facts)
    tuned = begun(store, "22" * 8)
    request = tuned.request() | {"upstream": {"encoder": pretraining.reference}}
    counts = {"task": "sst2", "encoder": "mine", "seed": 3}
    tuned.finish(request, counts, facts)
    (found,) = later_trainings("mine", pretraining, store)
    assert (found.name, found.group, found.output.stage) == ("sst2 mine seed 3", "mine", "finetune")
    assert [step for step, _ in found.rows()] == [10]
    layers = replace(tuned, stage="layers")
    assert name_of(layers) == "layers sst2 mine"
