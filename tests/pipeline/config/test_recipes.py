"""Recipes are data: what a user's YAML file may not do, and what of the environment it shows."""

from pathlib import Path

import pytest

from data_prep.errors import UsageError
from pipeline.commands.main import run
from pipeline.config import compose
from pipeline.config.compose import compose_config

SECRET = "sentinel-of-the-environment"


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's ./conf, with a secret in the environment."""
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MYSECRET", SECRET)
    compose._environment.cache_clear()  # it says once per process what it masks
    return tmp_path / "conf"


def recipe(conf: Path, text: str) -> None:
    content = f"# @package _global_\ndefaults:\n  - smoke\n{text}"
    (conf / "experiment" / "mine.yaml").write_text(content)


CALL = "_target_: pathlib.Path.touch\n      self: {_target_: pathlib.Path, _args_: [ran]}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"hydra:\n  callbacks:\n    own:\n      {CALL}", "_target_ would run code"),
        ("hydra:\n  callbacks:\n    own: {a: 1}", "hydra.callbacks: would run code"),
        ("hydra:\n  launcher:\n    _target_: os.system", "_target_ would run code"),
        (
            "hydra:\n  job_logging:\n    handlers: {own: {class: subprocess.Popen, args: [id]}}",
            "hydra.job_logging: subprocess.Popen is no handler",
        ),
        (
            "hydra:\n  hydra_logging:\n    handlers:\n      own: {'()': os.system}",
            "() would run code",
        ),
        ("name: !!python/object/apply:os.system [touch ran]", "line 4: could not determine a con"),
        ("name: !own 3", "line 4: could not determine a constructor for the tag '!own'"),
        ("name: [", "not valid YAML"),
        ("name: \xff", "not valid YAML"),
    ],
)
@pytest.mark.parametrize("command", [["plan"], ["run", "-m"], ["shard", "-m"]])
def test_a_recipe_cannot_run_code(
    conf: Path, text: str, says: str, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    recipe(conf, text)
    if "\xff" in text:
        (conf / "experiment" / "mine.yaml").write_bytes(f"# {text}".encode("latin-1"))
    sweep = ["seed=1,2"] if "-m" in command else []
    assert run([*command, "experiment=mine", *sweep, "paths.store=store"]) == 2
    said = capsys.readouterr().err
    assert says in said and "Traceback" not in said
    assert not (conf.parent / "ran").exists()


def test_a_recipe_of_one_point_cannot_either(
    conf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe(conf, f"hydra:\n  callbacks:\n    own:\n      {CALL}")
    assert run(["run", "-m", "experiment=smoke,mine", "paths.store=store"]) == 2
    assert "_target_ would run code" in capsys.readouterr().err
    assert not (conf.parent / "ran").exists() and not (conf.parent / "store").exists()


def test_a_group_file_cannot_either(conf: Path) -> None:
    """A file that a recipe relocates into Hydra's own config is refused too."""
    (conf / "own").mkdir()
    (conf / "own" / "handler.yaml").write_text("class: subprocess.Popen\nargs: [touch, ran]\n")
    (conf / "experiment" / "mine.yaml").write_text(
        "# @package _global_\ndefaults:\n  - smoke\n"
        "  - /own@hydra.job_logging.handlers.own: handler\n"
    )
    with pytest.raises(UsageError, match=r"hydra\.job_logging: subprocess\.Popen is no handler"):
        compose_config(["experiment=mine"])


@pytest.mark.parametrize(
    "override",
    [
        "+hydra.callbacks.own._target_=os.system",
        "+hydra.callbacks.own={_target_: os.system}",
        "++corpus.where.a={b: [{_target_: os.system}]}",
        "hydra.searchpath=[file:///tmp]",
    ],
)
def test_the_command_line_cannot_either(conf: Path, override: str) -> None:
    with pytest.raises(UsageError, match=r"would run code|put them there"):
        compose_config(["experiment=smoke", override])


@pytest.mark.parametrize(
    "text",
    [
        "report: {title: 'About ${oc.env:MYSECRET}'}",
        "report: {title: '${oc.decode:${oc.env:MYSECRET}}'}",
        "report: {title: '${tracking.project}'}\ntracking: {project: '${oc.env:MYSECRET}'}",
        "tracking: {project: '${oc.env:MYSECRET}', tags: ['a${oc.env:MYSECRET}'], group: "
        "'${oc.env:MYSECRET}'}",
        "corpus: {where: {a: '${oc.env:MYSECRET}'}}",
        "instances: {downstream: {set: ['report.title=${oc.env:MYSECRET}']}}",
    ],
)
def test_values_of_the_environment_are_masked(
    conf: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe(conf, text)
    config = compose_config(["experiment=mine"])
    assert SECRET not in str(config) and "***" in str(config)
    assert "instead of the environment variable MYSECRET" in capsys.readouterr().err
    for resolve in ([], ["--resolve"]):
        for what in ("job", "all"):
            assert run(["plan", "experiment=mine", "--cfg", what, *resolve]) == 0
            assert SECRET not in capsys.readouterr().out


def test_keys_that_are_meant_to_hold_them_do(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEVICES", "1")
    recipe(
        conf,
        "corpus: {paths: ['${oc.env:MYSECRET}/a']}\n"
        "task: {data_dir: '${oc.env:MYSECRET}/b'}\ninit: {source: '${oc.env:MYSECRET}'}\n"
        "tracking: {group: '${oc.env:NOTSET,default}'}\n"
        "trainer: {devices: '${oc.env:DEVICES}', strategy: single}",
    )
    config = compose_config(["experiment=mine"])
    assert config.corpus.paths == [f"{SECRET}/a"]
    assert config.task.data_dir == f"{SECRET}/b" and config.init.source == SECRET
    assert config.tracking.group == "default"
    assert config.trainer.devices == 1


def test_a_key_that_holds_them_is_not_copied_to_one_that_shows_them(conf: Path) -> None:
    recipe(conf, "corpus: {paths: ['${oc.env:MYSECRET}']}\nreport: {title: '${corpus.paths[0]}'}")
    with pytest.raises(UsageError, match=r"report\.title: copies corpus\.paths, which may hold"):
        compose_config(["experiment=mine"])


def test_a_variable_that_is_not_set_is_named(conf: Path) -> None:
    recipe(conf, "task: {data_dir: '${oc.env:NOTSET}/b'}")
    with pytest.raises(UsageError, match="the environment variable NOTSET is not set"):
        compose_config(["experiment=mine"])
