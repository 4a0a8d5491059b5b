"""Sweeps through submitit and Optuna, on a real SLURM."""

import json
import shutil
import sqlite3

import pytest

from tests.cluster.conftest import User

pytestmark = pytest.mark.cluster

FINETUNING = ("experiment=smoke", "encoder=smoke", "task=polarity", "name=swept")


@pytest.fixture
def encoder(submitted: User, user: User) -> User:
    """Somebody with a pretrained encoder, not yet exported."""
    shutil.copytree(submitted.store, user.store, ignore=shutil.ignore_patterns("sub*", "export"))
    return user


def test_six_fine_tunings_through_submitit(encoder: User) -> None:
    encoder.site(
        partition="main", time="UNLIMITED", at_once=3, memory="1000M", modules=["toys/1.0"],
        activate='[[ -n "${SLURM_JOB_ID}" ]] && echo "active" >> modules',
        extra=["--comment=swept"], signal=60,
    )  # fmt: skip
    modules = {"BASH_FUNC_module%%": f'() {{ echo "$@" >> {encoder.folder}/modules; }}'}
    done = encoder.succeed(
        "finetune", "-m", *FINETUNING, "hydra/launcher=submitit_slurm",
        "finetune.lr=1e-4,5e-4", "finetune.seed=7,8,9", **modules,
    )  # fmt: skip
    assert "making what all 6 points need" in done.stderr
    assert len(list((encoder.store / "export").glob("*/manifest.json"))) == 1
    (summary,) = (encoder.store / "sweeps").glob("*/summary.json")
    content = json.loads(summary.read_text())
    assert len(content["points"]) == 6
    assert set(content["means"]) == {"finetune.lr=0.0001", "finetune.lr=0.0005"}
    assert content["means"][content["best"]] == max(content["means"].values())
    assert "mean over seeds" in done.stderr and "best" in done.stderr
    run = json.loads((encoder.store / "runs" / "swept.json").read_text())
    tunings = [entry for entry in run["outputs"] if entry["stage"] == "finetune"]
    assert len(tunings) == 6  # though six jobs wrote them at once
    jobs = list(summary.parent.glob(".submitit/*/*_submission.sh"))
    for line in (
        "#SBATCH --partition=main", "#SBATCH --mem=1000M", "#SBATCH --time=UNLIMITED",
        "#SBATCH --comment=swept", "#SBATCH --signal=USR2@60", "module load toys/1.0",
    ):  # fmt: skip
        assert line in jobs[0].read_text().splitlines()
    loaded = (encoder.folder / "modules").read_text().splitlines()
    assert sorted(loaded) == ["active"] * 6 + ["load toys/1.0"] * 6


def test_a_submitted_sweep_is_an_array_and_ends_in_the_same_table(encoder: User) -> None:
    encoder.site(time="00:10:00", at_once=4)
    words = ("finetune.lr=1e-4,5e-4", "finetune.seed=7,8")
    jobs = encoder.submit("finetune", "-m", *FINETUNING, *words)
    assert list(jobs) == ["01-export", *(f"02-finetune[{task}]" for task in range(4))]
    assert len({job.partition("_")[0] for job in jobs.values()}) == 2
    states = encoder.wait(*{job.partition("_")[0] for job in jobs.values()})
    assert set(states.values()) == {"COMPLETED"}, encoder.logs()
    name = encoder.cluster.call(
        "squeue", "--noheader", "--states=all", "--format=%50j", f"--jobs={jobs['02-finetune[0]']}"
    )
    assert name.strip() == "swept-02-finetune-lr,seed"
    shown = encoder.succeed("status")
    assert shown.stdout.count(" done ") == 5 and "finetune.seed=8" in shown.stdout
    again = encoder.succeed("sweep").stderr
    assert "Sweep of 4 points" in again and again in shown.stderr
    (summary,) = (encoder.store / "sweeps").glob("*/summary.json")
    content = json.loads(summary.read_text())
    assert len(content["points"]) == 4 and content["best"] in content["means"]
    assert "==> " in encoder.succeed("logs", "finetune").stdout


def test_an_optuna_study_goes_on_after_a_restart(encoder: User) -> None:
    words = (
        "finetune", "-m", *FINETUNING, "hydra/sweeper=optuna", "hydra.sweeper.n_trials=2",
        "finetune.lr=tag(log, interval(1e-4, 1e-3))",
    )  # fmt: skip
    encoder.succeed(*words)
    encoder.succeed(*words)
    with sqlite3.connect(encoder.store / "sweeps" / "optuna.db") as database:
        [(studies,)] = database.execute("select count(*) from studies").fetchall()
        states = database.execute("select state from trials").fetchall()
    assert studies == 1
    assert states == [("COMPLETE",)] * 4
