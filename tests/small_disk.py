"""A real disk of a few hundred kilobytes, to be filled: a tmpfs, which only root may mount."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[bool]:
    """Mount one at `folder`; False where that is not permitted."""
    folder.mkdir(parents=True)
    options = ["-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs"]
    mounted = subprocess.run(["mount", *options, folder], capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", folder], check=True)


def resize(folder: Path, kilobytes: int) -> None:
    """Make a mounted disk larger."""
    subprocess.run(["mount", "-o", f"remount,size={kilobytes}k", folder], check=True)


def require(mounted: bool) -> None:
    """Skip a test that has no disk; its absence fails where SESAME_REQUIRE_MOUNT=1."""
    if not mounted:
        said = "a small disk cannot be mounted: that takes root, and a sandbox may forbid it"
        if os.environ.get("SESAME_REQUIRE_MOUNT") == "1":
            pytest.fail(said)
        pytest.skip(said)
