"""What the cluster's tests share: one real SLURM, and users whose commands speak to it."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.slurm import Cluster
from tests.conftest import Sesame

ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes, one with invented GPUs.

    SLURM's absence fails only where SESAME_REQUIRE_SLURM=1.
    """
    missing = [name for name in ("munged", "slurmctld", "slurmd") if shutil.which(name) is None]
    if missing or os.getuid() != 0:
        said = f"{missing[0]} is not installed" if missing else "node daemons need root"
        said += "; apt-get install slurm-wlm munge"
        if os.environ.get("SESAME_REQUIRE_SLURM") == "1":
            pytest.fail(said)
        pytest.skip(said)
    made = Cluster(tmp_path_factory.mktemp("slurm"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@dataclass(frozen=True)
class User(Sesame):
    """Somebody on the login node of a cluster."""

    cluster: Cluster

    def __call__(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return super().__call__(
            *words, **self.cluster.environment | {"COLUMNS": "250"} | environment
        )

    def site(self, **settings: object) -> None:
        """Write the site file; JSON is YAML too."""
        (self.folder / "site.yaml").write_text(json.dumps(settings))

    def submit(self, *words: str) -> dict[str, str]:
        """Submit; the jobs' ids by name."""
        said = self.succeed("submit", *words).stdout.splitlines()
        return {line.split()[1]: line.split()[0] for line in said if line[:1].isdigit()}

    def wait(self, *jobs: str, seconds: float = 400) -> dict[str, str]:
        """Wait until jobs have ended; their states."""
        deadline = time.monotonic() + seconds
        while True:
            states = self.cluster.job_states(*jobs)
            if all(state in ENDED for state in states.values()):
                return states
            assert time.monotonic() < deadline, f"{states}\n{self.logs()}"
            time.sleep(0.3)

    def logs(self) -> str:
        """Everything the jobs have said."""
        logs = sorted(self.store.glob("submissions/*/logs/*"))
        return "\n".join(f"{log.name}:\n{log.read_text()}" for log in logs)


@pytest.fixture
def user(cluster: Cluster, tmp_path: Path) -> User:
    """Somebody in an empty folder."""
    return User(tmp_path, cluster)


@pytest.fixture(scope="session")
def submitted(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> User:
    """Somebody whose whole smoke recipe went through SLURM; others copy the store."""
    user = User(tmp_path_factory.mktemp("submitted"), cluster)
    user.site(array=2, time="00:10:00")
    jobs = user.submit("experiment=smoke")
    states = user.wait(*jobs.values())
    assert set(states.values()) == {"COMPLETED"}, f"{states}\n{user.logs()}"
    return user
