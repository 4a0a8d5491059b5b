"""Fair timing on a noisy machine: the sides take short turns, so that a disturbance hits both.

Every turn records wall time, the CPU seconds of the side's own processes, and the share of the
machine that other processes used meanwhile. Wall time answers "how long do I wait", but only on an
idle machine; CPU seconds hold on a busy one.
"""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import psutil

Side = Callable[[], Callable[[], Any]]  # prepares, and returns the work to be timed
TURN_SECONDS = 1.5  # short beside the minutes in which a machine's load changes


@dataclass(frozen=True)
class Spent:
    """What one call of one side took."""

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
        """The mean of so many calls."""
        return Spent(self.seconds / calls, self.core_seconds / calls, self.others / calls)


class Clock:
    """Wall time, own CPU seconds and others' CPU seconds since it was made."""

    def __init__(self, processes: Sequence[psutil.Process] = ()) -> None:
        self._processes = processes
        self._started, self._own, self._machine = self._read()

    def spent(self) -> Spent:
        """What was spent since the clock was made."""
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
        # Linux counts guests in user time too; time stolen by a hypervisor is nobody's here.
        return time.perf_counter(), own, sum(machine) - idle - guests


def spent(work: Callable[[], object]) -> Spent:
    """What one call takes."""
    clock = Clock()
    work()
    return clock.spent()


def alternate(
    ours: Callable[[], object], peer: Callable[[], object], rounds: int
) -> list[tuple[Spent, Spent]]:
    """What a call of (ours, peer) takes, round by round; a turn repeats calls that are short."""
    return [(_turn(ours), _turn(peer)) for _ in range(rounds)]


def _turn(work: Callable[[], object]) -> Spent:
    clock, calls = Clock(), 0
    while calls == 0 or clock.spent().seconds < TURN_SECONDS:
        work()
        calls += 1
    return clock.spent().divided(calls)


def race(sides: Sequence[Side]) -> list[tuple[Spent, Any]]:
    """What each side's work took to its end, and what it returned; all advance in short turns.

    A side is a picklable callable that prepares and returns its work; only the work is timed. It
    runs in a process of its own, which is stopped (SIGSTOP) while others have their turn, so that
    works of minutes alternate too.
    """
    context = multiprocessing.get_context("spawn")
    runners = []
    try:
        for side in sides:
            runners.append(_Runner(context, side))
        waiting = list(runners)
        while waiting:
            for runner in list(waiting):
                if runner.take_turn():
                    waiting.remove(runner)
    finally:
        for runner in runners:
            runner.end()
    return [(runner.spent, runner.result) for runner in runners]


class _Runner:
    """One side's process."""

    def __init__(self, context: Any, side: Side) -> None:
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(side, theirs))
        self._process.start()
        theirs.close()
        self.spent = Spent(0.0, 0.0, 0.0)
        self.result: Any = None
        self._receive()  # its work is prepared
        self._pause()
        self._connection.send("go")

    def take_turn(self) -> bool:
        """Let the side work for a turn; whether it has finished."""
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
        """Remove the process, stopped or not."""
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
    signal.pause()  # its CPU seconds are read before it goes
