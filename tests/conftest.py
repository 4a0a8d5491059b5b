"""What the slow tests share: one whole run of the smoke recipe."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

os.environ.update(HF_HUB_OFFLINE="1", WANDB_MODE="offline", TOKENIZERS_PARALLELISM="false")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tensors are tiny here; threads only get in the way

# What must not be found in any file; see tests/test_privacy.py.
SECRETS = {
    "WANDB_API_KEY": "5e5a3e0c0ffee0000000000000000000000facade",
    "AWS_SECRET_ACCESS_KEY": "sentinel/of+a+cloud+that+nobody+may+read",
    "HF_TOKEN": "hf_sentinelofahubthatnobodymayread",
}


# Fixtures of the session that take long.
SHARED = ("smoke", "recorded")
# The longest groups. The second needs none of the functions that numba compiles for the first.
LONGEST = ("smoke", "test_training")


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in this hook too
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group tests, for `--dist loadgroup`: one process runs all tests of a file, or of a fixture in
    `SHARED`, and makes their fixtures once. What takes long comes first, so that no process waits
    for the other at the end."""

    def group(item: pytest.Item) -> str:
        names = getattr(item, "fixturenames", ())
        return next((name for name in SHARED if name in names), item.path.stem)

    def place(item: pytest.Item) -> int:
        if group(item) in LONGEST:
            return LONGEST.index(group(item))
        is_whole_pipeline = item.path.parent.name == "tests"
        return len(LONGEST) + (not is_whole_pipeline)

    for item in items:
        item.add_marker(pytest.mark.xdist_group(group(item)))
    items.sort(key=place)


@dataclass(frozen=True)
class Sesame:
    """The command line in a folder of its own, as a user has it."""

    folder: Path

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def __call__(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pipeline.commands.main", *words],
            cwd=self.folder,
            env=os.environ | environment,
            capture_output=True,
            text=True,
        )

    def succeed(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        done = self(*words, **environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done


@pytest.fixture
def sesame(tmp_path: Path) -> Sesame:
    """A user in an empty folder."""
    return Sesame(tmp_path)


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Sesame:
    """A user who has run the smoke recipe; many tests read what it left, none changes it."""
    user = Sesame(tmp_path_factory.mktemp("smoke"))
    done = user.succeed("run", "experiment=smoke", **SECRETS)
    (user.folder / "first_run.txt").write_text(done.stderr + done.stdout)
    return user
