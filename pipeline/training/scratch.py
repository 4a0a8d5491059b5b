"""Copy training rows to a node's own disk before they are read, step after step, from there.

SESAME_SCRATCH names the folder; the site file's `scratch:` sets it, such as $TMPDIR. Variables in
it are expanded on each node. Every node makes one copy, which its ranks share.
"""

import errno
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from data_prep.files import write_atomically
from pipeline.training.job import Job

LOOK_SECONDS = 0.2


def with_local_examples(job: Job, local_rank: int, say: Callable[[str], None]) -> Job:
    """Return the job with its examples on this node's disk; the job itself without SESAME_SCRATCH.

    Local rank 0 copies and the node's other ranks wait. Examples that do not fit stay where they
    are.
    """
    given = os.environ.get("SESAME_SCRATCH")
    if not given:
        return job
    scratch = Path(os.path.expandvars(given)) / "sesame-rows"
    if local_rank == 0:
        for folder in dict.fromkeys(job.examples):
            _copy(Path(folder), scratch, job.token, say)
    examples = [_wait_for_copy(Path(folder), scratch, job.token) for folder in job.examples]
    return replace(job, examples=list(map(str, examples)))


def _copy(folder: Path, scratch: Path, token: str, say: Callable[[str], None]) -> None:
    """Copy a folder unless another launch did; write where the rows of this launch are."""
    place = scratch / folder.name
    scratch.mkdir(parents=True, exist_ok=True)
    if not place.exists():
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        free = shutil.disk_usage(scratch).free
        if size > free:
            said = f"{scratch} has {free:,} bytes free, but the rows need {size:,}"
            say(f"{said}; reading them from {folder}")
            place = folder
        else:
            say(f"copying {size:,} bytes of rows to {scratch}")
            draft = scratch / f".{folder.name}.{token}"
            shutil.copytree(folder, draft)
            try:
                draft.rename(place)
            except OSError as error:  # another job on this node was faster
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
                shutil.rmtree(draft)
    write_atomically(scratch / f"{folder.name}.{token}", str(place))


def _wait_for_copy(folder: Path, scratch: Path, token: str) -> Path:
    """Return the folder that local rank 0 chose. If that rank fails, the launcher ends this one."""
    chosen = scratch / f"{folder.name}.{token}"
    while not chosen.exists():
        time.sleep(LOOK_SECONDS)
    return Path(chosen.read_text())
