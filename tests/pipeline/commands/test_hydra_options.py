"""Hydra's own options, other projects' configs, and keys that nobody obeys."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pipeline.commands.completion import INSTALL, UNINSTALL, complete
from pipeline.commands.main import run
from pipeline.config import recipes
from pipeline.config.compose import compose_config, group_options
from pipeline.config.recipes import UserConf

RECIPE = "# @package _global_\ndefaults: [bert_tiny, _self_]\nname: own\noptim: {lr: 0.125}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(UserConf, "added", None)
    recipes._say_once.cache_clear()
    return tmp_path


def test_short_options_are_hydras(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["-c", "job", "-p", "optim"], ["--cfg=job", "--package=optim"]):
        assert run(["plan", "experiment=demo", *words]) == 0
        assert "schedule: wsd" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--info", "searchpath"], ["-i", "searchpath"], ["--info"]])
def test_hydra_says_where_it_looks(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "experiment=demo", *words]) == 0
    assert "Config search path" in capfd.readouterr().out
    assert run(["plan", "--info=nonsense"]) == 2
    assert "--info=nonsense: must be one of all, config" in capfd.readouterr().err


def test_recipes_lie_in_any_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "elsewhere" / "experiment").mkdir(parents=True)
    (folder / "elsewhere" / "experiment" / "own.yaml").write_text(RECIPE)
    for words in (["--config-dir", "elsewhere"], ["-cd=elsewhere"]):
        assert run(["plan", "experiment=own", "-c", "job", "-p", "optim.lr", *words]) == 0
        assert capsys.readouterr().out == "0.125\n"
    assert "own" in group_options("experiment")
    assert run(["plan", "--config-dir=nowhere"]) == 2
    assert "--config-dir=nowhere: there is no such folder" in capsys.readouterr().err


def test_code_in_such_a_folder_is_refused_too(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "elsewhere" / "experiment").mkdir(parents=True)
    call = "hydra: {callbacks: {own: {_target_: os.system}}}\n"
    (folder / "elsewhere" / "experiment" / "own.yaml").write_text(RECIPE + call)
    assert run(["plan", "experiment=own", "--config-dir=elsewhere"]) == 2
    assert "_target_ would run code" in capsys.readouterr().err


def test_inside_another_hydra_project_sesame_works_and_says_what_it_does_not_read(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "conf" / "model").mkdir(parents=True)
    (folder / "conf" / "config.yaml").write_text("defaults: [{model: bert_base}]\nepochs: 3\n")
    (folder / "conf" / "model" / "bert_base.yaml").write_text("width: 3\n")
    assert compose_config(["model=bert_base"]).model == compose_config([]).model
    said = capsys.readouterr().err
    assert said.count("./conf/config.yaml belongs to another Hydra project") == 1
    assert "--config-dir=<folder>" in said
    assert run(["plan", "--config-dir=conf"]) == 2
    assert "config.yaml would take the place of Sesame's own" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["plan", "hydra.run.dir=out"], "hydra.run.dir=out: .*set paths.store"),
        (["run", "-m", "hydra.sweep.dir=out", "seed=1,2"], "hydra.sweep.dir=out: .*paths.store"),
        (["plan", "hydra.job.chdir=true"], "hydra.job.chdir=true: .*never change the folder"),
        (["plan", "hydra.verbose=true"], "hydra.verbose=true: .*leave it out"),
        (["run", "hydra/launcher=joblib"], "hydra/launcher=joblib: only a sweep uses it; add -m"),
        (["shard", "hydra.sweeper.n_trials=3"], "hydra.sweeper.n_trials=3: only a sweep uses it"),
        (
            ["pretrain", "encoder=mine"],
            "encoder=mine: pretrain does not use it, only export, finetune, layers, report do; "
            "init.source= names a model to start from",
        ),
        (["shard", "encoder=mine"], "encoder=mine: shard does not use it"),
        (["finetune", "runs=mine"], "runs=mine: finetune does not use it, only report"),
    ],
)
def test_keys_that_would_be_ignored_are_refused_by_name(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "experiment=bert_tiny", "corpus.paths=."]) == 2
    assert re.search(says, " ".join(capsys.readouterr().err.split()))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hydra: {run: {dir: out}}", "hydra.run.dir=out: Sesame does not use it; outputs go"),
        ("hydra: {job: {chdir: true}}", "hydra.job.chdir=True: Sesame does not use it"),
        ("hydra: {output_subdir: .hydra}", "hydra.output_subdir=.hydra: Sesame does not use it"),
    ],
)
def test_recipes_are_held_to_the_same(
    text: str, says: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "conf" / "experiment").mkdir(parents=True)
    (folder / "conf" / "experiment" / "own.yaml").write_text(f"{RECIPE}{text}\n")
    assert run(["plan", "experiment=own"]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sesame fin", ["finetune"]),
        ("sesame nonsense x", []),
        ("sesame pretrain --for", ["--force"]),
        ("sesame pretrain trac", ["tracking.", "tracking="]),
        ("sesame pretrain experiment=bert_ti", ["experiment=bert_tiny"]),
        ("sesame pretrain experiment=bert_tiny optim.bet", ["optim.beta1=", "optim.beta2="]),
        ("sesame pretrain experiment=elmo_tiny model.fil", ["model.filters."]),
        ("sesame pretrain nonsense=1 opt", []),
    ],
)
def test_a_line_is_completed(line: str, expected: list[str]) -> None:
    assert complete(line) == expected


def test_shells_take_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert INSTALL.keys() == UNINSTALL.keys() == {"bash", "zsh", "fish"}
    assert run(["-sc", "install=bash"]) == 0
    script = capsys.readouterr().out
    bash = shutil.which("bash")
    assert bash
    done = subprocess.run(
        [bash, "-c", f"{script}\ncomplete -p sesame"], capture_output=True, text=True, check=True
    )
    assert "-F _sesame_complete sesame" in done.stdout
    assert run(["--shell-completion", "install=cmd"]) == 2
    assert "for one of bash, zsh, fish" in capsys.readouterr().err
