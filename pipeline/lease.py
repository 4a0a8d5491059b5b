"""One worker an output: a lease with host, job and heartbeat that holds across nodes.

The holder beats every few seconds. A lease is stale when its process is gone (same machine) or when
no beat was seen for a while on the waiter's own clock, so skewed clocks do no harm. A requeued job
takes over from its own earlier start at once: SLURM has given that up, though it may still write.
"""

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from data_prep.errors import SesameError
from data_prep.files import write_atomically

BEAT_SECONDS = 5.0
STALE_SECONDS = 60.0
LOOK_SECONDS = 0.5


def _identity() -> dict[str, Any]:
    process = psutil.Process()
    return {
        "host": socket.gethostname(),
        "pid": process.pid,
        "pid_namespace": os.readlink("/proc/self/ns/pid")
        if os.path.exists("/proc/self/ns")
        else "",
        "started": process.create_time(),
        "job": os.environ.get("SLURM_JOB_ID"),
        "restart": os.environ.get("SLURM_RESTART_COUNT"),
        "token": uuid.uuid4().hex,
    }


def read_holder(path: Path) -> dict[str, Any] | None:
    """Who holds the lease at `path`, if anybody does."""
    try:
        holder: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return holder


def _is_gone(holder: dict[str, Any], me: dict[str, Any]) -> bool:
    """Whether the holder is an earlier start of this SLURM job, or ran here and does so no more."""
    if holder["job"] is not None and holder["job"] == me["job"]:
        return int(holder["restart"] or 0) < int(me["restart"] or 0)
    if (holder["host"], holder["pid_namespace"]) != (me["host"], me["pid_namespace"]):
        return False
    try:
        started: float = psutil.Process(holder["pid"]).create_time()
    except psutil.NoSuchProcess:
        return True
    return abs(started - float(holder["started"])) > 1


def describe(holder: dict[str, Any]) -> str:
    """Who holds a lease, for people."""
    job = f", SLURM job {holder['job']}" if holder["job"] else ""
    return f"process {holder['pid']} on {holder['host']}{job}"


class Lease:
    """A held lease; `check` before anything is given its final name."""

    def __init__(self, path: Path, identity: dict[str, Any]):
        self._path, self._identity = path, identity
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    @property
    def token(self) -> str:
        """Tells this launch from all others."""
        return str(self._identity["token"])

    def is_held(self) -> bool:
        """Whether nobody has taken the lease over."""
        holder = read_holder(self._path)
        return holder is not None and holder["token"] == self.token

    def check(self) -> None:
        """Stop a launch whose lease was taken over, before it writes."""
        if not self.is_held():
            raise SesameError(
                f"{self._path}: the lease was taken over by another launch; this one stops"
            )

    def _beat(self) -> None:
        beats = 0
        while not self._stop.wait(BEAT_SECONDS):
            if not self.is_held():
                return
            beats += 1
            with suppress(OSError):  # a full disk costs a beat, not the lease
                write_atomically(self._path, json.dumps(self._identity | {"beats": beats}))

    def release(self) -> None:
        """Give the lease back if it is still ours."""
        self._stop.set()
        self._thread.join()
        if self.is_held():
            self._path.unlink(missing_ok=True)


def _create(path: Path, identity: dict[str, Any]) -> bool:
    """Create the lease file whole; False if somebody else has it."""
    draft = path.with_name(f".{path.name}.{identity['token']}")
    draft.write_text(json.dumps(identity | {"beats": 0}))
    try:
        os.link(draft, path)  # atomic and exclusive, also on NFS
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    return True


def _take_away(path: Path, stale: dict[str, Any]) -> None:
    """Remove a stale lease, unless another waiter has replaced it meanwhile."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return
    taken = read_holder(aside)
    if taken is not None and taken["token"] != stale["token"]:
        os.link(aside, path)  # a fresh lease was moved: put it back
    aside.unlink()


@contextmanager
def lease(
    path: Path, is_done: Callable[[], bool], say: Callable[[str], None]
) -> Iterator[Lease | None]:
    """Hold the lease at `path`, waiting for another holder; None if the work got done meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    identity = _identity()
    seen: dict[str, Any] | None = None
    seen_at = 0.0
    told = False
    while not _create(path, identity):
        if is_done():
            yield None
            return
        holder = read_holder(path)
        if holder is None:
            continue
        if holder != seen:
            seen, seen_at = holder, time.monotonic()
        if _is_gone(holder, identity) or time.monotonic() - seen_at > STALE_SECONDS:
            say(f"taking over from {describe(holder)}, which is gone")
            _take_away(path, holder)
            continue
        if not told:
            say(f"waiting for {describe(holder)}, which works on the same output")
            told = True
        time.sleep(LOOK_SECONDS)
    held = Lease(path, identity)
    try:
        yield held
    finally:
        held.release()
