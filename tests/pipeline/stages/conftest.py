"""Outputs of every stage, made once on configs that record every read."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipeline.stages import STAGES
from pipeline.store.outputs import Store
from tests.pipeline.stages.recorded_reads import write_files


@dataclass(frozen=True)
class Recorded:
    """What `recorded_reads` left."""

    store: Store
    rows: list[dict[str, Any]]


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """All stages in a process of its own; ten seconds, most of them imports and training."""
    folder = tmp_path_factory.mktemp("reads")
    write_files(folder)
    done = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.stages.recorded_reads", str(folder)],
        cwd=Path(__file__).parents[3],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads((folder / "reads.json").read_text())
    assert {row["stage"] for row in rows} == STAGES.keys()
    return Recorded(Store(folder / "store"), rows)
