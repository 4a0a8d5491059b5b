"""The pipeline without DeepSpeed and without the calls that only Linux has.

This is the nearest we get to macOS: nothing was run on a Mac.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Sesame

# Python imports `sitecustomize` at start, in every process of the pipeline.
WITHOUT = """
import ctypes, importlib.machinery, importlib.metadata, os

for name in ("sched_getaffinity", "sched_setaffinity", "posix_fallocate"):
    delattr(os, name)

class Library(ctypes.CDLL):
    def __getattr__(self, name):
        if name == "prctl":
            raise AttributeError(name)
        return super().__getattr__(name)

find_spec, from_name = importlib.machinery.PathFinder.find_spec, importlib.metadata.distribution

def find_other_spec(name, path=None, target=None):
    return None if name == "deepspeed" else find_spec(name, path, target)

def other_distribution(name):
    if name == "deepspeed":
        raise importlib.metadata.PackageNotFoundError(name)
    return from_name(name)

ctypes.CDLL = Library
importlib.machinery.PathFinder.find_spec = find_other_spec
importlib.metadata.distribution = other_distribution
"""
SINGLE = ("trainer.strategy=single", "trainer.devices=1", "trainer.max_steps=2")


@pytest.fixture
def without_linux(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that has neither Linux's own calls nor DeepSpeed."""
    folder = tmp_path / "without"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(WITHOUT)
    return {"PYTHONPATH": f"{folder}{os.pathsep}{Path(__file__).parents[1]}"}


def test_they_are_really_gone(without_linux: dict[str, str]) -> None:
    code = (
        "import ctypes, importlib.util, os; assert not hasattr(ctypes.CDLL(None), 'prctl');"
        "assert not hasattr(os, 'sched_getaffinity') and not hasattr(os, 'posix_fallocate');"
        "assert importlib.util.find_spec('deepspeed') is None"
    )
    subprocess.run([sys.executable, "-c", code], env=os.environ | without_linux, check=True)


def test_one_process_trains_without_linux(sesame: Sesame, without_linux: dict[str, str]) -> None:
    """All data stages with their worker processes, two steps, and an export; about 20 s."""
    sesame.succeed("run", "experiment=smoke", *SINGLE, "--until", "export", **without_linux)
    [metrics] = sesame.store.glob("pretrain/*/metrics.jsonl")
    assert [json.loads(line)["step"] for line in metrics.read_text().splitlines()][-1] == 2
    assert list(sesame.store.glob("export/*/model.safetensors"))


def test_zero_without_deepspeed_is_refused_before_any_work(
    sesame: Sesame, without_linux: dict[str, str]
) -> None:
    done = sesame("pretrain", "experiment=smoke", **without_linux)
    assert done.returncode == 2
    assert "trainer.strategy=zero2: DeepSpeed is not installed" in done.stderr
    assert not list(sesame.store.glob("shard/*/manifest.json"))


def test_the_demo_of_make_needs_no_deepspeed(without_linux: dict[str, str], tmp_path: Path) -> None:
    """`make demo` asks Python whether DeepSpeed is there."""
    stamp = tmp_path / "installed"  # newer than pyproject.toml, so that nothing is to install
    stamp.touch()

    def command(environment: dict[str, str]) -> str:
        binaries = Path(sys.executable).parent
        printed = subprocess.run(
            ["make", "-s", "-n", "demo", f"STAMP={stamp}", f"BIN={binaries}"],
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        [line] = [line for line in printed.replace("\\\n", "").splitlines() if "experiment" in line]
        said = subprocess.run(
            ["sh", "-c", f"echo {line}"], env=os.environ | environment, capture_output=True,
            text=True, check=True,
        )  # fmt: skip
        return said.stdout.strip()

    assert command(without_linux).endswith("trainer.strategy=single trainer.devices=1")
    assert importlib.util.find_spec("deepspeed") is not None
    assert command({}).endswith("run experiment=demo")
