"""Each output has exactly one worker at a time: a lease that holds across nodes on a shared disk.

The lease is a small file that names its holder. Its content is written once and never changed. The
holder sends a heartbeat: it sets the file's modification time every few seconds. A lease is stale
in two cases: its process has ended (on the same machine), or the file did not change for
`STALE_SECONDS` on the waiter's own clock. Differences between the clocks of machines therefore do
no harm, and an empty or damaged lease becomes stale too. A requeued SLURM job takes over at once
from its own earlier start, although that may still be writing.

The process that the file names holds the lease. The file changes only by atomic operations:
    create     if there is no lease: a hard link (O_EXCL on disks without hard links)
    take over  a second file, the claim, names the new holder; it is renamed over the stale lease
    release    the holder gets the claim, then unlinks the lease
Only one process at a time has the claim, and it reads the lease again once it has it. So nobody
moves or removes a fresh lease. The next waiter unlinks a claim that a killed process left. If the
owner of that claim is alive after all, its rename fails and it waits again.
"""

import errno
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from data_prep.errors import SesameError

BEAT_SECONDS = 5.0  # between two heartbeats
STALE_SECONDS = 60.0  # without a heartbeat
LOOK_SECONDS = 0.5  # between two looks of a waiter
LOOK_AGAIN = 5  # attempts to read a file that another node replaces at the same time (ESTALE)
NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)  # errors of disks without hard links


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


KEYS = {"host", "pid", "pid_namespace", "started", "job", "restart", "token"}


@dataclass(frozen=True)
class _Seen:
    """A lease or claim file, as read at one moment."""

    content: bytes
    changed: int  # modification time in nanoseconds

    @property
    def holder(self) -> dict[str, Any] | None:
        """The process that the file names; None if the file is empty or damaged."""
        try:
            holder = json.loads(self.content)
        except ValueError:
            return None
        return holder if isinstance(holder, dict) and holder.keys() >= KEYS else None


def _look(path: Path) -> _Seen | None:
    """Read the file at `path`; None if there is none. Raises `SesameError` if it is unreadable."""
    for _ in range(LOOK_AGAIN):
        try:
            with open(path, "rb") as stream:
                return _Seen(stream.read(), os.fstat(stream.fileno()).st_mtime_ns)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno != errno.ESTALE:  # another node replaced the file: look at the new one
                raise SesameError(
                    f"{path}: the lease cannot be read ({error.strerror}); check the disk, then "
                    "run the same command again"
                ) from error
    raise SesameError(
        f"{path}: the lease cannot be read (stale file handle); mount the disk again, then run "
        "the same command again"
    )


def read_holder(path: Path) -> dict[str, Any] | None:
    """Return the holder of the lease at `path`; None if there is none or the file is damaged."""
    seen = _look(path)
    return seen.holder if seen else None


def _names(path: Path, token: str) -> bool:
    """Return True if the lease or claim at `path` has this token."""
    holder = read_holder(path)
    return holder is not None and holder["token"] == token


def _is_gone(holder: dict[str, Any], me: dict[str, Any]) -> bool:
    """Return True if the holder is an earlier start of this SLURM job, or a process of this machine
    that has ended."""
    is_same_job = holder["job"] is not None and holder["job"] == me["job"]
    if is_same_job and int(holder["restart"] or 0) < int(me["restart"] or 0):
        return True
    if (holder["host"], holder["pid_namespace"]) != (me["host"], me["pid_namespace"]):
        return False
    try:
        started: float = psutil.Process(holder["pid"]).create_time()
    except psutil.NoSuchProcess:
        return True
    return abs(started - float(holder["started"])) > 1


def describe(holder: dict[str, Any]) -> str:
    """Return the holder of a lease as text for users."""
    job = f", SLURM job {holder['job']}" if holder["job"] else ""
    return f"process {holder['pid']} on {holder['host']}{job}"


class _Watch:
    """Polls a file and measures, on this process's clock, how long it has not changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: _Seen | None = None
        self._since = 0.0

    def look(self) -> _Seen | None:
        seen = _look(self._path)
        if seen != self._seen:
            self._seen, self._since = seen, time.monotonic()
        return seen

    def is_stale(self, me: dict[str, Any]) -> bool:
        """Return True if the file, as last seen, belongs to a process that has ended or is too
        old."""
        if self._seen is None:
            return False
        holder = self._seen.holder
        is_gone = holder is not None and _is_gone(holder, me)
        return is_gone or time.monotonic() - self._since > STALE_SECONDS

    def unlink_stale(self, me: dict[str, Any]) -> None:
        """Remove the claim of a killed process. Must not be used for leases."""
        self.look()
        if self.is_stale(me):
            self._path.unlink(missing_ok=True)


class Lease:
    """A held lease with its heartbeat thread. Call `check` before a rename to a final name."""

    def __init__(self, path: Path, identity: dict[str, Any]):
        self._path, self._identity = path, identity
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep_beating, daemon=True)
        self._thread.start()

    @property
    def token(self) -> str:
        """The unique id of this launch."""
        return str(self._identity["token"])

    def is_held(self) -> bool:
        """Return True unless another process has taken the lease over."""
        return _names(self._path, self.token)

    def check(self) -> None:
        """Raise `SesameError` if the lease was taken over. Call it before writing."""
        if not self.is_held():
            raise SesameError(
                f"{self._path}: the lease was taken over by another launch; this one stops"
            )

    def beat(self) -> None:
        """Send one heartbeat: set the file's modification time.

        It is set through the open file that was read, so this never refreshes the lease of a
        process that has taken over.
        """
        with open(self._path, "rb") as stream:
            holder = _Seen(stream.read(), 0).holder
            if holder is not None and holder["token"] == self.token:
                os.utime(stream.fileno())

    def _keep_beating(self) -> None:
        while not self._stop.wait(BEAT_SECONDS):
            with suppress(OSError):  # a brief failure of the disk costs one beat, not the lease
                self.beat()

    def release(self) -> None:
        """Stop the heartbeat and remove the lease if it is still ours.

        On a full disk the claim cannot be written; the lease then stays and becomes stale.
        """
        self._stop.set()
        self._thread.join()
        claimed = _Watch(_claim_path(self._path))
        with suppress(OSError):
            while self.is_held() and not self._remove():
                claimed.unlink_stale(self._identity)
                time.sleep(LOOK_SECONDS)

    def _remove(self) -> bool:
        """Unlink the lease if it is ours; return False if another process has the claim."""
        with _claim(self._path, self._identity) as claim:
            if claim is not None and self.is_held():
                self._path.unlink()
        return claim is not None


def _create(path: Path, identity: dict[str, Any]) -> bool:
    """Create a lease or claim file unless one exists; return True if the file is ours now."""
    content = json.dumps(identity).encode()
    draft = path.with_name(f".{path.name}.{identity['token']}")
    try:
        draft.write_bytes(content)
        os.link(draft, path)  # atomic, exclusive and with its content, also on NFS
    except OSError as error:
        if error.errno in NO_LINKS:
            _create_exclusively(path, content)
        # An existing file may be ours: NFS repeats a request whose reply was lost.
        elif error.errno not in (errno.EEXIST, errno.ESTALE):
            raise
    finally:
        draft.unlink(missing_ok=True)
    return _names(path, identity["token"])


def _create_exclusively(path: Path, content: bytes) -> None:
    """Create a file unless one exists. For a moment other processes see it empty."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return
    with open(descriptor, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _claim_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.claim")


@contextmanager
def _claim(path: Path, identity: dict[str, Any]) -> Iterator[Path | None]:
    """Hold the claim, the right to change an existing lease; yields None if another process has
    it."""
    claim = _claim_path(path)
    if not _create(claim, identity):
        yield None
        return
    try:
        yield claim
    finally:
        if _names(claim, identity["token"]):
            claim.unlink(missing_ok=True)


def _take_over(path: Path, stale: _Seen, identity: dict[str, Any]) -> bool:
    """Replace a stale lease by ours unless it changed since; return True if we hold it now."""
    with _claim(path, identity) as claim:
        if claim is not None and _look(path) == stale:
            try:
                os.rename(claim, path)
            except (
                OSError
            ) as error:  # this process was suspended for so long that it lost the claim
                if error.errno not in (errno.ENOENT, errno.ESTALE):
                    raise
    return _names(path, identity["token"])


@contextmanager
def lease(
    path: Path, is_done: Callable[[], bool], say: Callable[[str], None]
) -> Iterator[Lease | None]:
    """Hold the lease at `path` inside the `with` block; wait while another process holds it.

    Yields None, without a lease, if `is_done()` becomes True meanwhile. `say` prints one line when
    it waits or takes over.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    identity = _identity()
    held, claimed = _Watch(path), _Watch(_claim_path(path))
    told = False
    while True:
        seen = held.look()
        if seen is None and _create(path, identity):
            break
        if is_done():
            yield None
            return
        claimed.unlink_stale(identity)
        if seen is not None and held.is_stale(identity) and _take_over(path, seen, identity):
            say(f"taking over{_from_whom(seen, path)}")
            break
        if seen is not None and not told:
            say(f"waiting{_for_whom(seen, path)}")
            told = True
        time.sleep(LOOK_SECONDS)
    ours = Lease(path, identity)
    try:
        yield ours
    finally:
        ours.release()


def _from_whom(seen: _Seen, path: Path) -> str:
    if seen.holder is None:
        unchanged = f"did not change for {STALE_SECONDS:g} seconds"
        return f": the lease {path} is empty or damaged, and {unchanged}"
    return f" from {describe(seen.holder)}, which is gone"


def _for_whom(seen: _Seen, path: Path) -> str:
    if seen.holder is None:
        return (
            f": the lease {path} is empty or damaged; it is taken over if it does not change for "
            f"{STALE_SECONDS:g} seconds"
        )
    return f" for {describe(seen.holder)}, which works on the same output"
