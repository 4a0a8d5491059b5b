"""Make work units as tasks of a Ray cluster whose nodes share the store's disk.

Ray only says who makes which unit; the units appear below `root` as with every other executor, so
a run may change executors half-way. Needs the extra `ray` (pip install 'sesame-encoders[ray]').
Try it: ray start --head; sesame shard executor=ray 'corpus.paths=[my_texts/]'
"""

import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.errors import SesameError, UsageError
from data_prep.progress import Bar
from data_prep.work_units import STOP_SIGNALS, MakeUnit, WorkUnit, run_unit

WAITING_PER_CORE = 2  # units that are submitted ahead, so that no core waits for the next
REACH_SECONDS = 10.0  # to wait for the head of the cluster
RETRIES = 3  # of a unit whose worker or node was lost


@dataclass(frozen=True)
class RayTasks:
    """Makes each unit as one task on one core of the Ray cluster at `address`.

    address: `<host>:<port>`, or `auto` for the cluster that this machine belongs to.
    """

    address: str = "auto"

    def make(
        self, units: Sequence[WorkUnit], make: MakeUnit, root: Path, title: str, bar: Bar
    ) -> None:
        """See `Executor.make`. A unit whose node is lost is made on another one."""
        if not units:
            return
        ray = _connect(self.address)
        run = ray.remote(num_cpus=1, max_retries=RETRIES)(run_unit)
        shared = ray.put(make)  # sent to each node once, however many units it makes
        most = max(1, int(WAITING_PER_CORE * ray.cluster_resources().get("CPU", 1)))
        left = iter(units)
        pending: dict[Any, WorkUnit] = {}
        try:
            while True:
                while len(pending) < most and (unit := next(left, None)) is not None:
                    pending[run.remote(unit, shared, root.resolve())] = unit
                if not pending:
                    return
                [done], _ = ray.wait(list(pending), num_returns=1)
                _result(ray, done, pending.pop(done), title)
                bar.advance()
        finally:
            for task in pending:
                ray.cancel(task, force=True)


def _connect(address: str) -> Any:
    """Connect this process to the cluster, once; return the library."""
    # Ray reports usage to its makers unless told otherwise.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with _signals_kept():
        try:
            import ray
        except ImportError as error:
            raise UsageError(
                "executor=ray: Ray is not installed; pip install 'sesame-encoders[ray]'"
            ) from error
        if ray.is_initialized():
            return ray
        try:
            _reach(address)
            ray.init(address=address, log_to_driver=False, logging_level="error")
        except OSError as error:
            raise SesameError(
                f"ray_address={address}: no Ray cluster answers there; start one with `ray start "
                "--head`, name its head as <host>:<port>, or use executor=pool"
            ) from error
    return ray


def _reach(address: str) -> None:
    """Raise OSError if nothing listens at `<host>:<port>`; Ray itself would try for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host, int(port)), REACH_SECONDS).close()


def _result(ray: Any, task: Any, unit: WorkUnit, title: str) -> None:
    """Raise the error of a task that failed, as the unit raised it."""
    try:
        ray.get(task)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        raise SesameError(
            f"{title}: Ray lost the worker of {unit.name} {RETRIES + 1} times, probably because "
            "memory ran out; finished work units are kept: run again with fewer cores per node "
            "(ray start --num-cpus)"
        ) from error


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Keep this process's handlers: importing Ray replaces that of SIGTERM."""
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS} if is_main else {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
