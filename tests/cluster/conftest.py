"""What the cluster's tests share: one real SLURM, and users whose commands speak to it."""

import os
import shutil
from collections.abc import Iterator

import pytest

from tests.cluster.slurm import Cluster
from tests.conftest import Sesame


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes; SLURM's absence fails only where SESAME_REQUIRE_SLURM=1."""
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


@pytest.fixture
def user(cluster: Cluster, sesame: Sesame, monkeypatch: pytest.MonkeyPatch) -> Sesame:
    """Somebody in an empty folder on the login node."""
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    return sesame
