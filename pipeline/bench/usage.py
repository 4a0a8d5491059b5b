"""Time and peak memory of work in a process of its own, the processes it starts included."""

import multiprocessing
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

SAMPLE_SECONDS = 0.02


@dataclass(frozen=True)
class Usage:
    """What some work took."""

    seconds: float
    core_seconds: float  # of all its processes, waiting for disks and other users left out
    megabytes: float  # resident at the worst moment, all processes together, shared pages twice


def measure_usage(work: Callable[[], object]) -> Usage:
    """Do the work, which must be picklable, in a fresh process; its start is not timed."""
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_timed, args=(work, sending))
    process.start()
    sending.close()
    assert process.pid is not None
    peak = 0
    try:
        while process.is_alive():
            peak = max(peak, _resident(psutil.Process(process.pid)))
            process.join(SAMPLE_SECONDS)
    finally:
        process.kill()
    seconds, core_seconds = receiving.recv()
    return Usage(seconds, core_seconds, peak / 1e6)


def _timed(work: Callable[[], object], sending: Connection) -> None:
    started, before = time.perf_counter(), sum(os.times()[:4])
    work()
    sending.send((time.perf_counter() - started, sum(os.times()[:4]) - before))


def _resident(process: psutil.Process) -> int:
    total = 0
    try:
        for each in (process, *process.children(recursive=True)):
            total += each.memory_info().rss
    except psutil.NoSuchProcess:  # one ended meanwhile
        pass
    return total


def peak_bytes() -> int:
    """Most memory this process has had (Linux).

    getrusage's figure is no use here: a process started by a large one begins with that one's.
    """
    status = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s*(\d+) kB", status)[1])  # type: ignore[index]
