"""A signal ends any command with one line and the shell's code; the same command goes on."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Sesame
from tests.test_data_stages import GOLDEN, SMALL, digest, write_texts

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
# Signals reach the whole group, as those of a terminal and of SLURM do: here when the workers have
# been started, and again when one of them has ended its work.
IN_A_POOL = """
import os, sys
import data_prep.work_units as units
from pipeline.commands.main import run

number, when, words = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
completed = units.as_completed

def signalled(futures):
    if when == "starting":
        os.killpg(os.getpgrp(), number)
    for future in completed(futures):
        if when == "working":
            os.killpg(os.getpgrp(), number)
        yield future

units.as_completed = signalled
sys.exit(run(words))
"""
IN_A_PLAN = """
import os, sys
from pipeline.commands import stages
from pipeline.commands.main import run
from pipeline.training.exits import Interrupted

number, what, words = int(sys.argv[1]), sys.argv[2], sys.argv[3:]

def plan(nodes, store, again=()):
    if what == "pretraining":
        raise Interrupted("interrupted at step 3")
    os.kill(os.getpid(), number)

stages.plan = plan
sys.exit(run(words))
"""


def signalled(folder: Path, code: str, number: int, when: str, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", code, str(int(number)), when, *words],
        cwd=folder, capture_output=True, text=True, start_new_session=True,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.parametrize("number", SIGNALS)
def test_any_command_ends_with_one_line(number: signal.Signals, tmp_path: Path) -> None:
    write_texts(tmp_path / "texts")
    code, said = signalled(tmp_path, IN_A_PLAN, number, "", "plan", *SMALL)
    assert code == 128 + number
    assert said == f"stopped by {number.name}; the same command goes on from here\n"


@pytest.mark.parametrize(
    ("what", "code", "says"),
    [
        ("signal", 143, "stopped by SIGTERM; the same command goes on from here"),
        ("pretraining", 75, "sesame examples: interrupted at step 3"),
    ],
)
def test_a_sweep_ends_with_its_first_stopped_point(
    what: str, code: int, says: str, tmp_path: Path
) -> None:
    """An interrupted pretraining has saved and says so; the sweep does not start the next one."""
    write_texts(tmp_path / "texts")
    Sesame(tmp_path).succeed("tokenizer", *SMALL)  # what the points share
    words = ("examples", "-m", *SMALL, "examples.seed=1,2")
    ended, said = signalled(tmp_path, IN_A_PLAN, signal.SIGTERM, what, *words)
    assert ended == code, said
    assert said.count(says) == 1 and "Traceback" not in said


@pytest.mark.parametrize(
    ("number", "when"),
    [
        (signal.SIGINT, "starting"),
        (signal.SIGUSR1, "starting"),
        (signal.SIGTERM, "working"),
        (signal.SIGUSR2, "working"),
    ],
)
def test_workers_say_nothing_and_the_same_command_goes_on(
    number: signal.Signals, when: str, tmp_path: Path
) -> None:
    """About 3 s: processes are started."""
    user = Sesame(tmp_path)
    write_texts(tmp_path / "texts")
    words = ("shard", *SMALL, "corpus.workers=2")
    code, said = signalled(tmp_path, IN_A_POOL, number, when, *words)
    assert code == 128 + number, said
    assert said.splitlines()[-1] == f"stopped by {number.name}; the same command goes on from here"
    assert "Traceback" not in said and "Process" not in said
    assert not list(user.store.glob("shard/*/manifest.json"))
    user.succeed(*words)
    [made] = user.store.glob("shard/*")
    assert digest(made) == GOLDEN["shard"]


def test_handlers_are_put_back() -> None:
    from pipeline.commands.main import run

    before = [signal.getsignal(number) for number in SIGNALS]
    assert run(["path"]) == 2
    assert [signal.getsignal(number) for number in SIGNALS] == before
