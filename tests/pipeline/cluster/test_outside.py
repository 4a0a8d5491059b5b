"""Calls from inside a container, with slurm/outside.sh as it is and a wrapper that hides a command.

The wrapper stands for a container: inside, `srun` is not on the path.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.cluster import outside
from pipeline.cluster.scripts import TEMPLATES, container_wrapper, environment, fill_template
from pipeline.cluster.site import Site


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose calls outside.sh performs while the test runs; `srun` is a script there."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    srun = binaries / "srun"
    srun.write_text('#!/usr/bin/env bash\necho "srun $* PORT=${MASTER_PORT:-}"\nexec "${@:2}"\n')
    srun.chmod(0o755)
    served = subprocess.Popen(
        ["bash", str(TEMPLATES / "outside.sh"), "sleep", "600"],
        env=os.environ | {"SESAME_CALLS_IN": str(tmp_path), "PATH": f"{binaries}:/usr/bin:/bin"},
        stdout=open(tmp_path / "log", "wb"),  # noqa: SIM115 (the process keeps it)
        start_new_session=True,
    )
    while not (found := list(tmp_path.glob(".calls-*"))):
        assert served.poll() is None
    monkeypatch.setenv("SESAME_CALLS", str(found[0]))
    try:
        yield found[0]
    finally:
        served.send_signal(signal.SIGTERM)
        served.wait()
        assert not found[0].exists()


def test_a_command_runs_outside_with_its_output_and_code(calls: Path) -> None:
    assert outside.exists("srun") and not outside.exists("sbatch_of_no_cluster")
    done = outside.run(["bash", "-c", "echo out; echo 'it''s err' >&2; exit 7"])
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "its err\n")
    assert outside.run(["no-such-command"]).returncode == 127


def test_ranks_are_started_outside_each_in_the_container(
    calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SESAME_CONTAINER", 'env INSIDE="$((1 + 1))"')  # the shell's to expand
    steps = outside.SlurmSteps(lambda: "10.0.0.1")
    command = ["bash", "-c", "echo inside=$INSIDE 'a b'; exit 75"]
    started = steps.start(["--nodes=2"], command, {"MASTER_PORT": "5 6"})
    assert started.wait() == started.poll() == 75
    said = (calls.parent / "log").read_text()
    assert "srun --nodes=2 env INSIDE=2 bash" in said and "PORT=5 6" in said
    assert "inside=2 a b" in said


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGKILL])
def test_signals_reach_a_step_outside(
    calls: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setenv("SESAME_CONTAINER", "")
    ready = calls.parent / "ready"
    command = ["bash", "-c", f"trap 'exit 75' USR1; touch {ready}; while :; do sleep 0.1; done"]
    started = outside.SlurmSteps(lambda: "").start(["--nodes=1"], command, {})
    while not ready.exists():
        assert started.poll() is None
    started.send_signal(number)
    assert started.wait() == (75 if number == signal.SIGUSR1 else 137)


def test_a_missing_server_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SESAME_CALLS", str(tmp_path))
    monkeypatch.setattr(outside, "ANSWER_SECONDS", 0.0)
    with pytest.raises(outside.SesameError, match=r"outside\.sh does not answer"):
        outside.run(["squeue"])


def test_outside_passes_the_code_and_signals_on(tmp_path: Path) -> None:
    script = str(TEMPLATES / "outside.sh")
    inside = "import os, sys; assert os.path.isdir(os.environ['SESAME_CALLS']); sys.exit(75)"
    done = subprocess.run(["bash", script, sys.executable, "-c", inside], cwd=tmp_path)
    assert done.returncode == 75
    waiting = f"trap 'exit 9' USR1; touch {tmp_path}/ready; while :; do sleep 0.1; done"
    served = subprocess.Popen(["bash", script, "bash", "-c", waiting], cwd=tmp_path)
    while not (tmp_path / "ready").exists():
        assert served.poll() is None
    served.send_signal(signal.SIGUSR1)
    assert served.wait() == 9


def test_the_script_of_a_container_site_starts_python_inside() -> None:
    site = Site(container="apptainer exec --nv --bind $DATA /x.sif", scratch="$TMPDIR")
    setup = environment(site, Path("/c o/code"), Path("/c o/01.sbatch"))
    wrapper = container_wrapper(site, Path("/c o/code"))
    text = fill_template("train", [], setup, ["job", "n.json"], wrapper)
    assert text.splitlines()[-1] == (
        "exec bash '/c o/code/slurm/outside.sh' apptainer exec --nv --bind $DATA /x.sif python "
        '-m pipeline.commands.main "$@"'
    )
    assert "export SESAME_CALLS_IN='/c o'" in text and "export SESAME_SCRATCH='$TMPDIR'" in text
    assert "export PATH=" not in text  # the container has its own Python
