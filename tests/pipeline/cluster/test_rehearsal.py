"""Rehearsals as jobs: one per place, and one with pretraining's resources that waits for them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from data_prep.errors import UsageError
from pipeline.cluster import rehearsal, slurm
from pipeline.cluster.frozen import Submission
from pipeline.cluster.rehearsal import (
    LIST,
    PLACES,
    places_of,
    reported,
    scripts_of,
    submit_rehearsal,
    write_rehearsal,
)
from pipeline.cluster.resources import Resources
from pipeline.cluster.site import Site
from pipeline.commands.arguments import parse
from pipeline.commands.rehearse import planned, report_place
from pipeline.commands.submit import submit
from pipeline.config.compose import compose_config
from pipeline.rehearse.checks import Verdict, judge_places
from pipeline.store.outputs import Store
from tests.pipeline.toy_pretraining import toy_config

GPU = Resources(partition="gpu", account="deep", time="24:00:00", gpus="a100:2")
SITE = Site(partition="cpu", container="apptainer exec s.sif", stages={"pretrain": GPU})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def folder(store: Store) -> Submission:
    return Submission(store.root / "rehearsals" / "r")


@pytest.fixture(scope="module")
def scripts(store: Store, folder: Submission) -> dict[str, str]:
    config = toy_config(accelerator="cuda", strategy="ddp", devices=2)
    stages = ("shard", "examples", "pretrain", "finetune")
    nodes: list[Any] = [SimpleNamespace(stage=stage, config=config) for stage in stages]
    pretrain = nodes[2]
    places = places_of(nodes, SITE)
    assert [place.settings for place in places] == [
        {"partition": "cpu"},
        {"partition": "gpu", "account": "deep"},
    ]
    assert places[1].title == "partition gpu, account deep (pretrain)"
    overrides = ["experiment=smoke", "name=it's mine"]
    made = scripts_of(places, pretrain, overrides, folder, SITE, {"gpu": 4})
    write_rehearsal(places, made, folder)
    return made


def test_every_place_gets_a_small_job_and_pretraining_a_real_one(scripts: dict[str, str]) -> None:
    assert list(scripts) == ["place-01", "place-02", "rehearse"]
    for name in ("place-01", "place-02"):
        assert "#SBATCH --time=0:10:00" in scripts[name] and "gpus" not in scripts[name]
        assert "rehearse --place=" in scripts[name] and f"/{PLACES}/{name}.json" in scripts[name]
    assert "#SBATCH --account=deep" in scripts["place-02"]
    assert "account" not in scripts["place-01"]
    real = scripts["rehearse"]
    for option in ("--partition=gpu", "--gpus-per-node=a100:2", "--ntasks-per-node=2"):
        assert f"#SBATCH {option}" in real
    assert "experiment=smoke 'name=it'\"'\"'s mine'" in real
    assert "SESAME_CONTINUE=stop" in real
    for text in scripts.values():
        assert "outside.sh apptainer exec s.sif python" in text and "--no-requeue" in text


def test_the_rehearsal_runs_whatever_became_of_the_places(
    scripts: dict[str, str], folder: Submission, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, ...]] = []

    def call(*command: str) -> str:
        told.append(command)
        return f"{len(told)}\n"

    monkeypatch.setattr(slurm, "call", call)
    ids = submit_rehearsal(scripts, folder)
    assert [command[1] for command in told[:3]] == ["--test-only"] * 3
    assert f"--dependency=afterany:{ids['place-01']}:{ids['place-02']}" in told[-1]


def test_a_refused_job_cancels_those_before_it(
    scripts: dict[str, str], folder: Submission, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled: list[str] = []

    def submit(script: Path, after: list[str], condition: str) -> str:
        if script.stem == "place-02":
            raise slurm.Refused("no such account")
        return "7"

    monkeypatch.setattr(rehearsal.slurm, "check_script", lambda script: None)
    monkeypatch.setattr(rehearsal.slurm, "submit_script", submit)
    monkeypatch.setattr(rehearsal.slurm, "cancel_jobs", cancelled.extend)
    with pytest.raises(slurm.Refused, match="no such account"):
        submit_rehearsal(scripts, folder)
    assert cancelled == ["7"]


def test_places_that_reported_are_told_from_those_that_did_not(
    scripts: dict[str, str], folder: Submission
) -> None:
    places = folder.path / PLACES
    assert (places / LIST).exists()
    report_place(places / "place-01.json")
    good, failed = judge_places(reported(places))
    assert good.verdict == Verdict.GOOD and "torch 2" in good.found
    assert "partition cpu" in good.question
    assert (failed.verdict, failed.found) == (Verdict.FAILED, "no job has reported")
    assert "partition gpu, account deep (pretrain)" in failed.question


def test_what_a_rehearsal_reads_must_be_made_first(tmp_path: Path) -> None:
    overrides = ["experiment=smoke", f"paths.store={tmp_path}"]
    with pytest.raises(UsageError, match="sesame run --until=examples experiment=smoke"):
        planned(compose_config(overrides), overrides)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rehearse", "-m"], "-m: does not go with --rehearse"),
        (["--steps=30"], "--steps: goes only with --rehearse"),
        (["--rehearse", "--dry-run", "--steps=3"], "--steps=3: must be a whole number, 8 or more"),
    ],
)
def test_options_that_would_do_nothing_are_refused(words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        submit(parse(["submit", "experiment=smoke", *words]))
