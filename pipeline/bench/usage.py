"""Measure time and peak memory of work in a fresh process, including its child processes."""

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
    """Time and memory of some work."""

    seconds: float
    core_seconds: float  # CPU seconds of all its processes, without waiting
    megabytes: float  # peak resident memory summed over processes; shared pages count repeatedly


def measure_usage(work: Callable[[], object]) -> Usage:
    """Run picklable work in a fresh process; the start of the process is not timed."""
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
    except psutil.NoSuchProcess:  # a process ended meanwhile
        pass
    return total


def peak_bytes() -> int:
    """Return the peak memory of this process (Linux).

    getrusage is not usable: a child process starts with its parent's peak.
    """
    status = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s*(\d+) kB", status)[1])  # type: ignore[index]
