"""Dashboards: told from metrics.jsonl, one run whatever happens, and never a reason to stop."""

import csv
import importlib.util
import json
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from data_prep.errors import UsageError
from data_prep.files import sha256
from pipeline.commands import main as cli
from pipeline.stages.pretrain import make_job
from pipeline.store.outputs import Output, Store
from pipeline.tracking import dashboards
from pipeline.tracking.config import TrackingConfig
from pipeline.tracking.lineage import artifacts, inputs_of, results_of
from pipeline.tracking.tracker import Tracker
from pipeline.tracking.training import Training, by_step
from pipeline.tracking.wandb_settings import belonging, code_version, private_settings
from pipeline.training.rank import train
from pipeline.training.stopping import StopRequest
from tests.pipeline.toy_pretraining import Toy, last_step, toy_config
from tests.pipeline.wandb_server import WandbServer

NOWHERE = "http://127.0.0.1:9"  # the port of `discard`, where nobody listens
VERSIONS = {"torch": "2.9.0"}
STEPS = 6


@dataclass
class Sample:
    """A pretraining in a store, with what it was made from and what was made from it."""

    store: Store
    training: Training
    outputs: dict[str, Output]


def finish(store: Store, stage: str, upstream: dict[str, Output], **files: str) -> Output:
    output = store.output(stage, f"{len(upstream)}{stage}".encode().hex()[:16])
    request = {
        "stage": stage,
        "format": 1,
        "config": {"corpus": {"paths": ["notes"]}, stage: {"size": 3}, "task": {}},
        "upstream": {role: each.reference for role, each in upstream.items()},
        "files_read": {},
    }
    output.begin(request)
    for name, content in files.items():
        path = output.path / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    output.finish(request, {"rows": 7}, {"name": "sample", "versions": VERSIONS})
    return output


def metrics(first: int, last: int) -> str:
    lines: list[dict[str, Any]] = []
    for step in range(first, last + 1):
        lines.append({"step": step, "loss": 1 / step, "gradient_norm": None})
        if step % 2 == 0:
            lines.append({"step": step, "heldout_loss": 2 / step})
    return "".join(json.dumps(line) + "\n" for line in lines)


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    store = Store(tmp_path / "store")
    shard = finish(store, "shard", {}, **{"train-00000.tar": "documents"})
    tokenizer = finish(store, "tokenizer", {"shard": shard}, **{"vocab.txt": "[PAD]"})
    examples = finish(
        store, "examples", {"shard": shard, "tokenizer": tokenizer}, **{"train-00000.tar": "rows"}
    )
    checksums = {"weights.safetensors": {"bytes": 7, "sha256": "ab" * 32}}
    before = {"tokenizer": tokenizer, "examples.0": examples}
    pretrain = finish(
        store, "pretrain", before,
        **{
            "metrics.jsonl": metrics(1, STEPS),
            "timing.jsonl": "".join(
                json.dumps({"step": step, "tokens_per_second": 50.0}) + "\n"
                for step in range(1, STEPS + 1)
            ),
            "checkpoints__00000003__checksums.json": json.dumps(checksums),
            "checkpoints__00000006__checksums.json": json.dumps(checksums),
        },
    )  # fmt: skip
    job = {
        "name": "sample", "model": {"kind": "bert"}, "optim": {}, "trainer": {}, "masks": {},
        "tracking": asdict(TrackingConfig(project="letters")), "phases": [], "examples": [],
        "tokenizer": "", "vocab_size": 9, "source": None, "checkpoint": None, "skip": None,
    }  # fmt: skip
    (pretrain.path / ".rank.json").write_text(json.dumps(job))
    export = finish(store, "export", {"pretrain": pretrain}, **{"model.safetensors": "weights"})
    scores = {
        "task": "polarity", "metric": "accuracy", "score": 0.75, "encoder": "sample", "seed": 1,
        "scores": {"accuracy": 0.75}, "train_examples": 3, "test_examples": 4,
    }  # fmt: skip
    finetune = finish(store, "finetune", {"encoder": export}, **{"scores.json": json.dumps(scores)})
    runs = store.root / "runs"
    runs.mkdir()
    entry = {"stage": "pretrain", "fingerprint": pretrain.fingerprint, "label": ""}
    (runs / "sample.json").write_text(json.dumps({"name": "sample", "outputs": [entry]}))
    made = (shard, tokenizer, examples, pretrain, export, finetune)
    return Sample(
        store,
        Training.in_folder("sample", pretrain.path),
        {output.stage: output for output in made},
    )


def test_lines_of_a_step_are_one_row_of_numbers() -> None:
    lines: list[dict[str, Any]] = [
        {"step": 1, "loss": 2.0, "gradient_norm": None},
        {"step": 2, "dropped": "the loss is not finite"},
        {"step": 3, "loss": 1.0},
        {"step": 3, "heldout_loss": 1.5},
    ]
    assert list(by_step(lines)) == [(1, {"loss": 2.0}), (3, {"loss": 1.0, "heldout_loss": 1.5})]


def test_rows_come_from_both_journals_and_a_torn_line_is_none(sample: Sample) -> None:
    with open(sample.training.output.path / "metrics.jsonl", "a") as stream:
        stream.write('{"step": 7, "lo')
    rows = dict(sample.training.rows())
    assert list(rows) == [1, 2, 3, 4, 5, 6]
    assert rows[2] == {"loss": 0.5, "heldout_loss": 1.0, "tokens_per_second": 50.0}
    assert list(dict(sample.training.rows(until=4))) == [1, 2, 3, 4]


def test_a_training_keeps_its_id(sample: Sample) -> None:
    again = Training.in_folder("renamed", sample.training.output.path)
    assert again.id == sample.training.id


def test_the_config_has_recipe_fingerprints_and_versions_but_not_the_corpus(sample: Sample) -> None:
    config = sample.training.config()
    assert {"examples", "tokenizer", "pretrain", "fingerprints", "versions"} <= set(config)
    assert "corpus" not in config
    assert config["versions"] == VERSIONS
    references = {sample.outputs[stage].reference for stage in ("shard", "tokenizer", "examples")}
    assert set(config["fingerprints"]["all"]) == references


def test_artifacts_refer_to_files_by_the_checksums_of_manifests(sample: Sample) -> None:
    inputs = inputs_of(sample.store, sample.outputs["pretrain"])
    assert {each.kind for each in inputs} == {"shard", "tokenizer", "examples"}
    for artifact in inputs:
        for name, file in artifact.files.items():
            assert file.path == sample.outputs[artifact.kind].path / name
            assert (file.size, file.sha256) == (file.path.stat().st_size, sha256(file.path))
    kept = artifacts(sample.outputs["pretrain"])
    assert [each.aliases for each in kept] == [("step-3",), ("step-6",)]
    assert {each.name for each in kept} == {f"checkpoint-{sample.outputs['pretrain'].fingerprint}"}


def test_results_are_those_of_this_pretraining_only(sample: Sample) -> None:
    export, finetune = sample.outputs["export"], sample.outputs["finetune"]
    next_one = finish(sample.store, "pretrain", {"init": export, "a": export, "b": export})
    other = finish(sample.store, "export", {"pretrain": next_one, "tokenizer": next_one})
    assert results_of(sample.store, sample.outputs["pretrain"]) == [export, finetune]
    assert results_of(sample.store, next_one) == [other]


def test_wandbs_own_variables_win(monkeypatch: pytest.MonkeyPatch) -> None:
    config = TrackingConfig(project="ours", group="first", tags=["a"])
    monkeypatch.setenv("WANDB_PROJECT", "theirs")
    monkeypatch.setenv("WANDB_TAGS", "b")
    told = belonging(config, "sample", "pretrain")
    assert told == {"entity": None, "group": "first", "name": "sample", "job_type": "pretrain"}


def test_a_run_is_grouped_and_named_by_itself_or_its_sweep() -> None:
    own = belonging(TrackingConfig(), "mine", "pretrain")
    assert (own["group"], own["name"], own["job_type"]) == ("mine", "mine", "pretrain")
    swept = belonging(TrackingConfig(group="sweep-1", label="lr=0.1"), "mine", "finetune")
    assert (swept["group"], swept["name"], swept["job_type"]) == ("sweep-1", "lr=0.1", "finetune")


def test_rows_after_the_last_checkpoint_are_sent_only_when_one_covers_them(sample: Sample) -> None:
    """A rollback repeats these steps; what a server has is not taken back."""
    last = sample.training.output.path / "checkpoints" / "00000006"
    shutil.move(last, sample.training.output.path / "later")

    def shown() -> list[int]:
        with open(sample.training.folder / "csv" / "metrics.csv") as stream:
            return [int(row["step"]) for row in csv.DictReader(stream)]

    config = TrackingConfig(loggers=["csv"])
    assert follow(sample, config, 1) == []
    assert shown() == [1, 2, 3]
    shutil.move(sample.training.output.path / "later", last)
    assert follow(sample, config, 1) == []
    assert shown() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("asked", [True, False])
def test_the_codes_version_and_the_machines_load_are_sent_only_where_asked(
    asked: bool, sample: Sample
) -> None:
    config = TrackingConfig(code=asked, system=asked)
    assert ("code" in dashboards.described(config, sample.training)) == asked
    settings = private_settings("pretrain", 1.0, 1.0, config.system)
    assert settings.x_disable_stats is not asked
    assert settings.x_disable_meta and settings.disable_git and settings.disable_code
    assert code_version().keys() <= {"commit", "changed"}


def test_our_mode_wins_unless_it_is_left_to_wandbs_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs = TrackingConfig(mode="environment")
    for variable, active in (("online", ["wandb"]), ("offline", ["wandb"]), ("disabled", [])):
        monkeypatch.setenv("WANDB_MODE", variable)
        for ours in ("online", "offline", "disabled"):
            assert TrackingConfig(mode=ours).wandb_mode == ours
        assert (theirs.wandb_mode, theirs.active) == (variable, active)
    monkeypatch.delenv("WANDB_MODE")
    assert theirs.wandb_mode == "offline"  # where nobody says anything, nothing is sent


def follow(sample: Sample, config: TrackingConfig, first: int) -> list[str]:
    """A launch that goes on from before step `first`; what it says."""
    said: list[str] = []
    tracker = Tracker(config, sample.training, first - 1, said.append)
    for step in range(first, STEPS + 1):
        tracker.log({"step": step, "loss": float(step)})
    tracker.close()
    return said


def test_csv_and_tensorboard_show_a_resumed_run_without_its_rolled_back_steps(
    sample: Sample,
) -> None:
    config = TrackingConfig(loggers=["csv", "tensorboard"])
    for first in (1, 4):  # the second launch goes on from step 3
        assert follow(sample, config, first) == []
    with open(sample.training.folder / "csv" / "metrics.csv") as stream:
        rows = list(csv.DictReader(stream))
    assert [int(row["step"]) for row in rows] == [1, 2, 3, 4, 5, 6]
    losses = [float(row["loss"]) for row in rows]
    assert losses == pytest.approx([1, 1 / 2, 1 / 3, 4, 5, 6])  # told before, then new

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    shown = EventAccumulator(str(sample.training.folder / "tensorboard"))
    shown.Reload()
    found = shown.Scalars("loss")
    assert [event.step for event in found] == [1, 2, 3, 4, 5, 6]
    assert [event.value for event in found] == pytest.approx(losses)


def test_every_launch_leaves_one_whole_offline_run(sample: Sample, fresh_wandb: None) -> None:
    for first in (1, 4):
        assert follow(sample, TrackingConfig(), first) == []
    (run,) = sample.training.folder.glob("wandb/offline-run-*")
    assert run.name.endswith(sample.training.id)


def test_a_server_that_cannot_be_reached_stops_and_slows_nothing(
    tmp_path: Path,
    fresh_wandb: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("WANDB_BASE_URL", NOWHERE)
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")  # which training sets
    monkeypatch.setattr(dashboards, "CONNECT_SECONDS", 1.0)
    toy = Toy.make(tmp_path)
    config = replace(toy_config(), name="letters", tracking=TrackingConfig(mode="online"))
    output = Store(tmp_path / "store").output("pretrain", "ab" * 8)
    output.begin({"config": {}, "upstream": {}})
    make_job(replace(toy.work("letters", config), out=output.path), None).write(output.path)
    assert train(output.path, StopRequest())
    assert last_step(output.path) == 8
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("wandb is off from here on (CommError: ") == 1
    assert "training goes on, and metrics.jsonl has everything; later: sesame sync letters" in said


def sync(sample: Sample) -> int:
    return cli.run(["sync", "sample", f"paths.store={sample.store.root}"])


def test_sync_uploads_one_run_rebuilt_from_the_journals(
    sample: Sample, server: WandbServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sync(sample) == 0, capsys.readouterr().err
    assert sample.training.id in capsys.readouterr().out
    first = server.named("UpsertBucket")[0]
    assert (first["name"], first["project"], first["displayName"]) == (
        sample.training.id, "letters", "sample",
    )  # fmt: skip
    assert {each["name"] for each in server.named("UpsertBucket")} == {sample.training.id}
    config = json.loads(server.named("UpsertBucket")[-1]["config"])
    assert config["versions"]["value"] == VERSIONS
    assert [row["_step"] for row in server.history()] == [1, 2, 3, 4, 5, 6]
    assert [row["loss"] for row in server.history()] == pytest.approx([1 / s for s in range(1, 7)])
    used = {each["input"]["artifactID"].partition("-")[0] for each in server.named("UseArtifact")}
    assert used == {"shard", "tokenizer", "examples"}
    made = {each["input"]["artifactTypeName"] for each in server.named("CreateArtifact")}
    assert made - used == {"checkpoint", "export", "scores"}
    (summary,) = server.files["wandb-summary.json"].values()
    assert json.loads(summary)["polarity/accuracy"] == 0.75
    assert server.named("RunResumeStatus") == []  # written anew, whatever the server has


def test_sync_uploads_fine_tunings_as_runs_of_their_own(
    sample: Sample, server: WandbServer, capsys: pytest.CaptureFixture[str]
) -> None:
    tuning = Training("sample", sample.outputs["finetune"])
    manifest = tuning.output.path / "manifest.json"
    content = json.loads(manifest.read_text())
    content["config"] = {"task": {"name": "polarity", "labels": ["x"]}, "finetune": {"seed": 7}}
    manifest.write_text(json.dumps(content))
    tuning.folder.mkdir()
    lines = [
        {"step": 3, "loss": 0.5},
        {"step": 6, "loss": 0.25},
        {"step": 6, "test_accuracy": 0.75},
    ]
    tuning.journals[0].write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert sync(sample) == 0, capsys.readouterr().err
    runs = {each["name"]: each for each in server.named("UpsertBucket") if each.get("displayName")}
    assert runs.keys() == {sample.training.id, tuning.id}
    own = runs[tuning.id]
    assert (own["displayName"], own["groupName"], own["jobType"]) == (
        "polarity, seed=7", "sample", "finetune",
    )  # fmt: skip
    assert runs[sample.training.id]["jobType"] == "pretrain"
    # The test server keeps rows by number, whosever they are: those of the last run replaced two.
    assert [row["loss"] for row in server.history()][:2] == [0.5, 0.25]


def test_a_variable_of_the_environment_sends_nothing(
    sample: Sample, server: WandbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    assert follow(sample, TrackingConfig(), 4) == []
    assert server.named("UpsertBucket") == server.history() == []


def test_an_online_run_is_sent_while_it_trains(
    sample: Sample, server: WandbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")  # in the user's profile: ours wins
    assert follow(sample, TrackingConfig(mode="online", tags=["toy"]), 4) == []
    assert server.named("UpsertBucket")[0]["tags"] == ["toy"]
    assert [row["_step"] for row in server.history()] == [1, 2, 3, 4, 5, 6]
    assert len(server.named("UseArtifact")) == 3
    checkpoints = [each["input"]["artifactTypeName"] for each in server.named("CreateArtifact")]
    assert checkpoints.count("checkpoint") == 2


@pytest.mark.parametrize(
    ("environment", "words", "code", "says"),
    [
        ({}, ["sync"], 2, "name one run"),
        ({}, ["sync", "sampel"], 2, "did you mean sample?"),
        ({"WANDB_API_KEY": ""}, ["sync", "sample"], 2, "wandb login"),
        ({"WANDB_API_KEY": "short"}, ["sync", "sample"], 2, "is not valid"),
        ({}, ["sync", "sample"], 1, f"{NOWHERE} does not answer"),
    ],
    ids=["no run", "wrong run", "no key", "wrong key", "no server"],
)
def test_sync_says_what_is_missing(
    sample: Sample,
    environment: dict[str, str],
    words: list[str],
    code: int,
    says: str,
    fresh_wandb: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home = sample.store.root.parent  # without a key that this machine may have
    base = {"WANDB_BASE_URL": NOWHERE, "WANDB_API_KEY": "a" * 40, "HOME": str(home)}
    for name, value in (base | environment).items():
        monkeypatch.setenv(name, value)
    before = sorted(path for path in sample.store.root.rglob("*") if path.is_file())
    assert cli.run([*words, f"paths.store={sample.store.root}"]) == code
    assert says in capsys.readouterr().err
    assert sorted(path for path in sample.store.root.rglob("*") if path.is_file()) == before


def test_tensorboard_that_is_not_installed_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "tensorboard" else found(name)
    )
    with pytest.raises(UsageError, match=r"pip install 'sesame-encoders\[tensorboard\]'"):
        TrackingConfig(loggers=["tensorboard"]).check()
    TrackingConfig().check()
