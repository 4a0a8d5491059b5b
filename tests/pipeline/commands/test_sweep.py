"""Sweeps as Hydra's users write them, each to its table."""

import json
import random
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from data_prep.errors import SesameError, UsageError
from pipeline.commands.early_stopping import PROGRESS, EarlyStopping
from pipeline.commands.main import run
from pipeline.commands.sweep import on_dashboards
from pipeline.config.compose import compose_config
from pipeline.config.sweep import read_sweep
from pipeline.stages.watching import reporting
from pipeline.training.exits import Interrupted
from pipeline.workflow.stage import StoppedEarly, no_report

WORDS = ["good", "bad", "film", "plot"]
TASK = "name: {name}\ntrain: train.tsv\ndata_dir: {folder}\n"
RECIPE = """# @package _global_
defaults: [bert_tiny, _self_]
name: mine
encoder: tfidf
hydra:
  sweeper:
    params:
      task.train_examples: choice(12, 24)
      finetune.seed: range(1, 3)
"""


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two tasks, word vectors and a recipe that sweeps."""
    draw = random.Random(0)
    rows = [draw.choices(WORDS, k=5) for _ in range(80)]
    lines = [f"{' '.join(words)}\t{int('good' in words)}" for words in rows]
    (tmp_path / "train.tsv").write_text("\n".join(["sentence\tlabel", *lines, ""]))
    (tmp_path / "glove.txt").write_text("good 1 0\nbad 0 1\nfilm 1 1\nplot 0 0\n")
    for folder in ("task", "experiment"):
        (tmp_path / "conf" / folder).mkdir(parents=True)
    for name in ("toy_a", "toy_b"):
        text = TASK.format(name=name, folder=tmp_path)
        (tmp_path / "conf" / "task" / f"{name}.yaml").write_text(text)
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path


def summary(user: Path) -> dict[str, Any]:
    [path] = (user / "store" / "sweeps").glob("*/summary.json")
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def settings(user: Path) -> list[list[str]]:
    return [point["settings"] for point in summary(user)["points"]]


def test_a_sweep_in_a_recipe_ends_in_the_table_of_one_on_the_command_line(user: Path) -> None:
    assert run(["finetune", "-m", "experiment=mine", "task=toy_a", "--at-once=1"]) == 0
    assert settings(user) == [
        [f"task.train_examples={count}", f"finetune.seed={seed}"]
        for count in (12, 24)
        for seed in (1, 2)
    ]
    assert summary(user)["means"].keys() == {"task.train_examples=12", "task.train_examples=24"}
    assert summary(user)["best"] in summary(user)["means"]


def test_the_command_line_replaces_what_the_recipe_sweeps(user: Path) -> None:
    points = read_sweep(["experiment=mine", "finetune.seed=7"]).points()
    assert [point[1:] for point in points] == [
        ["finetune.seed=7", f"task.train_examples={count}", "keep=False"] for count in (12, 24)
    ]


def test_groups_are_swept_by_glob(user: Path) -> None:
    words = ["experiment=mine", "task=glob(toy_*)", "task.train_examples=12", "finetune.seed=1"]
    assert run(["finetune", "-m", *words, "--at-once=1"]) == 0
    assert settings(user) == [["task=toy_a"], ["task=toy_b"]]
    assert summary(user)["best"] is None and "differ in task" in summary(user)["why_no_best"]
    with pytest.raises(UsageError, match=r"task=glob\(zz\*\): matches nothing"):
        read_sweep(["experiment=mine", "task=glob(zz*)"])


def test_keys_that_only_make_sense_swept_are_swept() -> None:
    sweep = read_sweep(["experiment=bert_continue", "init.source=a,b", "corpus.paths=x"])
    assert [compose_config(point).init.source for point in sweep.points()] == ["a", "b"]
    assert compose_config(sweep.first()).name == "bert_continue"


def test_points_without_a_name_share_one() -> None:
    points = read_sweep(["model=bert_tiny", "seed=3", "optim.lr=1e-4,2e-4"]).points()
    assert {compose_config(point).name for point in points} == {"bert_tiny_seed-3"}
    points = read_sweep(["model=bert_tiny,bert_mini"]).points()
    assert {compose_config(point).name for point in points} == {"sweep"}


def test_optuna_ends_in_a_table(user: Path) -> None:
    words = ["experiment=mine", "task=toy_a", "hydra/sweeper=optuna", "hydra.sweeper.n_trials=3"]
    assert run(["finetune", "-m", *words, "~hydra.sweeper.params"]) == 2  # nothing is swept
    recipe = RECIPE.replace("finetune.seed: range(1, 3)", "finetune.dropout: interval(0.1, 0.5)")
    (user / "conf" / "experiment" / "mine.yaml").write_text(recipe)
    assert run(["finetune", "-m", *words]) == 0
    keys = [[word.partition("=")[0] for word in point] for point in settings(user)]
    assert keys == [["task.train_examples", "finetune.dropout"]] * 3
    assert (user / "store" / "sweeps" / "optuna.db").exists()


def test_points_that_optuna_would_choose_cannot_be_planned(
    user: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    search = ["hydra/sweeper=optuna", "finetune.lr=interval(0.0001, 0.01)"]
    assert run(["plan", "-m", "experiment=mine", "task=toy_a", *search]) == 2
    assert "this command needs a grid: leave it out" in capsys.readouterr().err


def test_bad_points_are_stopped_early_and_said_so(user: Path) -> None:
    words = [
        "experiment=mine", "task=toy_a", "encoder=glove.txt", "task.train_examples=48",
        "finetune.mode=frozen", "finetune.seed=1", "finetune.epochs=8", "finetune.batch_size=4",
        "finetune.lr=0.1,0.11,0.12,0", "finetune.accelerator=cpu", "finetune.dropout=0",
    ]  # fmt: skip
    assert run(["finetune", "-m", *words, "--stop-early"]) == 0
    points = summary(user)["points"]
    assert [bool(point["stopped"]) for point in points] == [False, False, False, True]
    assert "in the median" in points[3]["stopped"] and points[3]["value"] is None
    assert "finetune.lr=0" not in summary(user)["means"]
    unfinished = [
        path
        for path in (user / "store" / "finetune").iterdir()
        if (path / ".request.json").exists()
    ]
    assert len(unfinished) == 1


@pytest.mark.parametrize(
    ("command", "options", "says"),
    [
        ("shard", ["--stop-early"], "--stop-early: only finetune and pretrain report"),
        ("finetune", ["--stop-early", "--at-once=2"], "--at-once: --stop-early says how"),
    ],
)
def test_early_stopping_is_refused_where_it_cannot_work(
    command: str, options: list[str], says: str, user: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["experiment=mine", "task=toy_a", "corpus.paths=train.tsv"]
    assert run([command, "-m", *words, *options]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(("stage", "sign"), [("finetune", 1), ("pretrain", -1)])
def test_a_point_is_compared_with_the_median_at_the_same_step(
    stage: str, sign: int, tmp_path: Path
) -> None:
    for number, values in enumerate([(5, 9), (3, 4), (1, 2)]):
        for step, value in enumerate(values, 1):
            EarlyStopping(tmp_path, number, stage)(step, sign * value)
    point = EarlyStopping(tmp_path, 3, stage)
    point(1, sign * 3)  # as good as the median
    with pytest.raises(StoppedEarly) as stopped:
        point(2, sign * 3.5)
    assert (stopped.value.step, stopped.value.value) == (2, sign * 3.5)
    EarlyStopping(tmp_path, 4, stage)(3, sign * -100)  # nobody else has got there
    with (tmp_path / "0" / PROGRESS).open("a") as stream:
        stream.write("[3, 1")  # another node is writing it, or was killed
    EarlyStopping(tmp_path, 5, stage)(1, sign * 9)


def test_a_pretraining_is_watched_and_interrupted(tmp_path: Path) -> None:
    journal = tmp_path / "metrics.jsonl"
    came = threading.Event()
    before = signal.getsignal(signal.SIGUSR1)
    told: list[tuple[int, float]] = []

    def report(step: int, value: float) -> None:
        told.append((step, value))
        if value > 4:
            raise StoppedEarly(step, value, 1.0)

    with pytest.raises(StoppedEarly, match="stopped at 20"), reporting(journal, report):
        signal.signal(signal.SIGUSR1, lambda number, frame: came.set())
        journal.write_text('{"step": 10, "heldout_loss": 2.0}\n{"step": 20, "heldout_loss": 5.0}\n')
        assert came.wait(30)
        raise Interrupted("saved")
    assert told == [(10, 2.0), (20, 5.0)]
    assert signal.getsignal(signal.SIGUSR1) == before
    with pytest.raises(SesameError, match="saved"), reporting(journal, no_report):
        raise Interrupted("saved")


def test_a_training_that_has_ended_is_not_stopped_any_more(tmp_path: Path) -> None:
    journal = tmp_path / "metrics.jsonl"
    told: list[int] = []

    def report(step: int, value: float) -> None:
        told.append(step)
        raise StoppedEarly(step, value, 1.0)

    with reporting(journal, report):
        journal.write_text('{"step": 10, "heldout_loss": 2.0}\n')
    assert told == [10]


def test_a_fine_tuning_on_ranks_reports_evaluations_by_number(tmp_path: Path) -> None:
    """As one in this process does; epochs may have several."""
    journal = tmp_path / "metrics.jsonl"
    told: list[tuple[int, float]] = []
    with reporting(journal, lambda *value: told.append(value), "dev_f1", is_numbered=True):
        lines = [{"step": 10, "epoch": 1}, {"step": 20, "epoch": 1, "dev_f1": 0.5},
                 {"step": 40, "epoch": 1, "dev_f1": 0.25}]  # fmt: skip
        journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert told == [(1, 0.5), (2, 0.25)]


def test_points_are_grouped_by_sweep_and_named_by_settings_on_dashboards() -> None:
    config = compose_config(["experiment=bert_continue", "init.source=/private/x"])
    settings = ["optim.lr=0.1", "init.source=/private/x", "++corpus.where.a=b"]
    point = on_dashboards(config, "2026-01-01", settings).tracking
    assert (point.group, point.label) == ("2026-01-01", "lr=0.1, source=x, a=b")
    given = compose_config(["experiment=smoke", "tracking.group=g", "tracking.label=l"])
    kept = on_dashboards(given, "2026-01-01", settings).tracking
    assert (kept.group, kept.label) == ("g", "l")
