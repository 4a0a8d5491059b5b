"""The command line itself: which options a command takes, what it leaves in the environment."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from data_prep.errors import UsageError
from pipeline.cluster import slurm
from pipeline.commands import catalogue
from pipeline.commands import main as cli
from pipeline.commands.arguments import parse
from pipeline.commands.catalogue import COMMANDS
from pipeline.commands.main import SPINS, run

HUB = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY")
PRINTING = {"run", "plan", "path", "submit", "estimate", "rehearse", *(
    name for name, command in COMMANDS.items() if command.function == catalogue._STAGE
)}  # fmt: skip


def test_help_shows_every_command_once_within_eighty_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    shown = [line.split()[0] for line in lines if line.startswith("  ")]
    assert sorted(shown) == sorted(COMMANDS)


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.strip() == version("sesame-encoders")


@pytest.mark.parametrize("given", ["", "0"])
def test_nothing_is_asked_of_the_hub_unless_the_user_says_so(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in HUB:
        monkeypatch.delenv(name, raising=False)
    if given:
        monkeypatch.setenv("HF_HUB_OFFLINE", given)
    assert run(["--help"]) == 0
    assert [os.environ[name] for name in HUB] == [given or "1", given or "1", "1"]


@pytest.mark.parametrize("given", [None, "ACTIVE"])
def test_threads_that_wait_long_sleep_unless_the_user_says_otherwise(
    given: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "")  # restored after the test
        monkeypatch.delenv(name)
    if given:
        monkeypatch.setenv("OMP_WAIT_POLICY", given)
    assert run(["--help"]) == 0
    assert os.environ["OMP_WAIT_POLICY"] == (given or "PASSIVE")
    assert os.environ.get("GOMP_SPINCOUNT") == (None if given else SPINS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
@pytest.mark.parametrize("option", ["--cfg", "--package", "--resolve"])
def test_options_are_taken_only_where_they_are_declared(name: str, option: str) -> None:
    if name in PRINTING:
        assert option in parse([name, "--cfg=job", option, "job"]).options
    else:
        with pytest.raises(UsageError, match=f"{option}: sesame {name} has no such option"):
            parse([name, option, "job"])


@pytest.mark.parametrize("name", sorted(PRINTING))
def test_a_configuration_is_printed_and_nothing_is_done(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(slurm, "require", lambda: pytest.fail("SLURM was asked"))
    words = ["shard"] if name == "path" else []
    assert run([name, *words, "--cfg", "job", "--package=trainer", "trainer.max_steps=7"]) == 0
    assert "max_steps: 7" in capfd.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["clean", "--yes", "--cfg", "job"], "--cfg: sesame clean has no such option"),
        (["clean", "--yes=false"], "--yes=false: --yes takes no value"),
        (["run", "--resolve"], "--resolve: goes with --cfg"),
        (["run", "--package", "trainer"], "--package: goes with --cfg"),
        (["run", "--cfg", "jobs"], "--cfg jobs: must be one of job, hydra, all"),
        (["run", "--cfg"], "--cfg: needs a value"),
        (["run", "--cfg", "job", "--package", "trainr"], "--package trainr: there is no such part"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert run(words) == 2
    assert says in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


RICH = """
import sys
import rich
from pipeline.commands import main
main._run = lambda argv: rich.print("x") or 0
sys.exit(main.run([]))
"""


@pytest.mark.parametrize(
    "words",
    [
        ["-m", "pipeline.commands.main", "finetune", "--help"],
        ["-m", "pipeline.commands.main", "--help"],
        ["-m", "pipeline.commands.main", "run", "--cfg", "job"],
        ["-c", RICH],  # which would end the process with exit code 1
    ],
    ids=["finetune", "help", "config", "rich"],
)
def test_a_reader_that_leaves_ends_a_command_quietly(words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # before the first line, so that every write fails
    with os.fdopen(writing, "w") as pipe:
        done = subprocess.run(
            [sys.executable, *words],
            stdout=pipe,
            stderr=subprocess.PIPE,
        )
    assert done.stderr == b""
    assert done.returncode == cli.READER_GONE


def test_a_broken_pipe_of_another_kind_is_no_silent_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(argv: list[str]) -> int:
        raise BrokenPipeError("a worker is gone")

    monkeypatch.setattr(cli, "_run", fail)
    with pytest.raises(BrokenPipeError, match="a worker is gone"):
        run(["plan"])


def test_a_name_between_colons_stays_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """rich would print a picture for it, in a path and in `file:top: no list data`."""
    assert run(["predict", "model=:top:/x", "input=a.txt"]) == 2
    assert "model=:top:/x" in capsys.readouterr().err
