"""Fair timing on a noisy machine: the sides take short turns, so that noise affects both.

Every turn records wall time, the CPU seconds of the side's own processes, and the CPU seconds of
all other processes. Wall times are valid only on an idle machine; CPU seconds are valid on a busy
one too.
"""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import psutil

Side = Callable[[], Callable[[], Any]]  # prepares, and returns the work to time
OPENMP_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")  # environment variables that `sesame` sets
TURN_SECONDS = 1.5  # short compared with the minutes in which a machine's load changes


@dataclass(frozen=True)
class Spent:
    """The time that one call of one side took."""

    seconds: float
    core_seconds: float  # of the side's own processes
    others: float  # core-seconds of all other processes meanwhile

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            self.seconds + other.seconds,
            self.core_seconds + other.core_seconds,
            self.others + other.others,
        )

    def divided(self, calls: int) -> "Spent":
        """Return the mean over `calls` calls."""
        return Spent(self.seconds / calls, self.core_seconds / calls, self.others / calls)


class Clock:
    """Wall time, own CPU seconds and others' CPU seconds since its creation."""

    def __init__(self, processes: Sequence[psutil.Process] = ()) -> None:
        self._processes = processes
        self._started, self._own, self._machine = self._read()

    def spent(self) -> Spent:
        """Return the time spent since the clock was created."""
        now, own, machine = self._read()
        mine = own - self._own
        return Spent(now - self._started, mine, max(0.0, machine - self._machine - mine))

    def _read(self) -> tuple[float, float, float]:
        own = sum(os.times()[:4])
        for process in self._processes:
            times = process.cpu_times()
            own += times.user + times.system
        machine = psutil.cpu_times()
        idle = machine.idle + getattr(machine, "iowait", 0.0)
        guests = getattr(machine, "guest", 0.0) + getattr(machine, "guest_nice", 0.0)
        # Linux includes guest time in user time. Time stolen by a hypervisor is not counted.
        return time.perf_counter(), own, sum(machine) - idle - guests


def spent(work: Callable[[], object]) -> Spent:
    """Return the time of one call."""
    clock = Clock()
    work()
    return clock.spent()


def alternate(
    ours: Callable[[], object], peer: Callable[[], object], rounds: int
) -> list[tuple[Spent, Spent]]:
    """Return the time per call of (ours, peer), round by round; a turn repeats short calls."""
    return [(_turn(ours), _turn(peer)) for _ in range(rounds)]


def _turn(work: Callable[[], object]) -> Spent:
    clock, calls = Clock(), 0
    while calls == 0 or clock.spent().seconds < TURN_SECONDS:
        work()
        calls += 1
    return clock.spent().divided(calls)


def race(sides: Sequence[Side], peer: Side) -> list[tuple[Spent, Any]]:
    """Return the time and result of each side's work, the peer's last; they take short turns.

    A side is a picklable callable that prepares and returns its work; only the work is timed. Each
    side has its own process, which is stopped (SIGSTOP) during the others' turns. So even work
    that takes minutes alternates. The peer's process has the environment that its users have.
    """
    context = multiprocessing.get_context("spawn")
    runners = []
    try:
        for side in sides:
            runners.append(_Runner(context, side))
        with _without(OPENMP_VARIABLES):
            runners.append(_Runner(context, peer))
        waiting = list(runners)
        while waiting:
            for runner in list(waiting):
                if runner.take_turn():
                    waiting.remove(runner)
    finally:
        for runner in runners:
            runner.end()
    return [(runner.spent, runner.result) for runner in runners]


@contextmanager
def _without(names: Sequence[str]) -> Iterator[None]:
    """Hide environment variables from processes that are started in the `with` block."""
    hidden = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)


class _Runner:
    """One side's process."""

    def __init__(self, context: Any, side: Side) -> None:
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(side, theirs))
        self._process.start()
        theirs.close()
        self.spent = Spent(0.0, 0.0, 0.0)
        self.result: Any = None
        self._receive()  # wait until its work is prepared
        self._pause()
        self._connection.send("go")

    def take_turn(self) -> bool:
        """Let the side work for one turn; return True if it has finished."""
        process = psutil.Process(self._process.pid)
        clock = Clock([process])
        process.send_signal(signal.SIGCONT)
        finished = bool(self._connection.poll(TURN_SECONDS))
        if not finished:
            self._pause()
        self.spent += clock.spent()
        if finished:
            self.result = self._receive()
        return finished

    def end(self) -> None:
        """Kill the process, stopped or not."""
        self._process.kill()
        self._process.join()

    def _pause(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def _receive(self) -> Any:
        try:
            kind, value = self._connection.recv()
        except EOFError:
            raise RuntimeError("a side of the benchmark died; see its messages above") from None
        if kind == "error":
            raise value
        return value


def _serve(side: Side, connection: Connection) -> None:
    try:
        work = side()
        connection.send(("ready", None))
        connection.recv()
        connection.send(("result", work()))
    except Exception as error:  # the parent raises it
        connection.send(("error", error))
    signal.pause()  # wait: the parent still reads this process's CPU seconds
