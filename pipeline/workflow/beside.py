"""Makes outputs beside each other, each in a process of its own, with its share of the machine.

A request to stop is passed on: the processes save what they have, as each would alone, and are
killed if that takes longer than `GRACE_SECONDS`.
"""

import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection
from typing import Any

from data_prep.errors import SesameError
from data_prep.progress import progress
from data_prep.work_units import (
    STOP_SIGNALS,
    end_with_parent,
    kill_workers,
    stop_signals_blocked,
    usable_cores,
)
from pipeline.store.outputs import LEASE
from pipeline.training.exits import Interrupted
from pipeline.workflow.devices import VISIBLE, divide_devices, visible_devices
from pipeline.workflow.stage import Node

GRACE_SECONDS = 60.0  # to save after a request to stop; SLURM warns 120 s before the time limit
Make = Callable[[Node, bool], float]  # makes an output, again if True; returns the seconds


class SomeFailed(SesameError):
    """Some outputs of a parallel execution failed. The message is that of the first failure."""

    def __init__(self, failures: dict[str, SesameError]) -> None:
        first = next(iter(failures.values()))
        super().__init__(str(first))
        self.exit_code = first.exit_code
        self.failures = failures  # by the reference of the output


def make_beside(
    nodes: Sequence[Node],
    at_once: int,
    again: Collection[Node],
    make: Make,
    made: Callable[[Node, float], None],
) -> None:
    """Make outputs `at_once` at a time; call `made` after each.

    All are tried; then `SomeFailed` is raised if any failed. Raises `SesameError` at once if a
    process was killed.
    """
    waiting, running = deque(nodes), dict[Future[float], Node]()
    failures: dict[str, SesameError] = {}
    with _pool(nodes, at_once) as pool, progress(nodes[0].stage, len(nodes)) as bar:
        try:
            while waiting or running:
                # No more than can begin: what waits inside the pool cannot be taken back.
                while waiting and len(running) < at_once:
                    node = waiting.popleft()
                    with stop_signals_blocked():  # the pool starts a process where none is idle
                        running[pool.submit(_make, make, node, node in again)] = node
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    node, error = running.pop(future), future.exception()
                    if isinstance(error, SesameError):
                        failures[node.output.reference] = error
                    elif error is not None:
                        raise error
                    else:
                        made(node, future.result())
                    bar.advance()
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            _stop_workers()
            if isinstance(error, BrokenProcessPool):
                raise SesameError(_killed(nodes, at_once)) from error
            raise
    if failures:
        raise SomeFailed(failures)


def _pool(nodes: Sequence[Node], at_once: int) -> ProcessPoolExecutor:
    """Return a pool whose processes share cores and CUDA devices equally."""
    configs = [node.config.finetune for node in nodes]
    most = max(config.devices for config in configs)
    with stop_signals_blocked():
        context = multiprocessing.get_context("spawn")
        free: multiprocessing.Queue[str] = context.Queue()
        for devices in divide_devices(visible_devices(configs), most, at_once):
            free.put(devices)
        threads = max(1, usable_cores() // at_once)
        return ProcessPoolExecutor(at_once, context, _begin_process, (threads, free))


def _stop_workers() -> None:
    """Ask the processes of the pool to stop, wait until they have saved, and kill the rest."""
    try:
        for worker in multiprocessing.active_children():
            worker.terminate()
        end = time.monotonic() + GRACE_SECONDS
        while (alive := multiprocessing.active_children()) and time.monotonic() < end:
            connection.wait([worker.sentinel for worker in alive], max(0, end - time.monotonic()))
    finally:
        kill_workers()


def _killed(nodes: Sequence[Node], at_once: int) -> str:
    """Return the message for a killed process of the pool.

    Killed processes leave their leases behind; these tell which outputs were being made.
    """
    begun = [
        f"{node.stage} {node.output.fingerprint[:8]}"
        for node in nodes
        if not node.output.is_done and (node.output.path / LEASE).exists()
    ]
    return (
        f"{nodes[0].stage}: a process was killed while it made "
        f"{' or '.join(begun) or 'its first output'}, probably for lack of memory; finished "
        f"outputs are kept: run again with --at-once below {at_once}"
    )


def _begin_process(threads: int, free: "multiprocessing.Queue[str]") -> None:
    """Set up a process of the pool, before torch is imported and reads threads and devices.

    `free` has the CUDA devices of each process. Stop signals are blocked so far. Those of a
    terminal or of SLURM may reach the whole group, but the parent decides: it sends SIGTERM, which
    stays blocked until `_make`. Ranks inherit what is blocked here.
    """
    end_with_parent()
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN if number != signal.SIGTERM else _leave)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, set(STOP_SIGNALS) - {signal.SIGTERM})
    if devices := free.get():
        os.environ[VISIBLE] = devices
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    os.environ["TTY_COMPATIBLE"] = "0"  # live progress bars would overwrite each other


def _make(make: Make, node: Node, is_again: bool) -> float:
    """Make an output in a process of the pool, until it is made or SIGTERM comes.

    Training has its own handlers, and saves. An idle process ends.
    """
    try:
        signal.signal(signal.SIGTERM, _leave)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        return make(node, is_again)
    except SystemExit as left:
        raise Interrupted("interrupted; run the same command to go on") from left
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _leave(number: int, frame: Any) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit
