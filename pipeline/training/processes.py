"""Start the ranks of this machine, forward signals to them, and wait for their end.

Ranks end with this process, receive its signals, and are stopped when one of them fails.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from data_prep.work_units import STOP_SIGNALS, end_with_parent
from pipeline.training.exits import INTERRUPTED, REPORTS

FINE = (0, INTERRUPTED)  # exit codes of a rank that did not fail
LOOK_SECONDS = 0.1  # between two polls of the ranks
GRACE_SECONDS = 10.0  # for the other ranks to end once one has failed


class Process(Protocol):
    """The part of `subprocess.Popen` that a launcher uses."""

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""

    def wait(self) -> int:
        """Wait for its end; return the exit code."""

    def send_signal(self, number: int, /) -> None:
        """Send it a signal."""

    def kill(self) -> None:
        """End it at once."""


def run_ranks(
    run_dir: Path,
    variables: dict[str, str],
    count: int,
    first: int = 0,
    others: Callable[[], int | None] = lambda: None,
    entry: str = "pipeline.training.rank",
) -> tuple[int, int]:
    """Start `count` ranks from number `first` on and wait; return the deciding rank and its code.

    `others` returns a code once a rank of another machine has failed; then those here are ended.
    `entry` is the module that a rank runs.
    """
    command = [sys.executable, "-m", entry, str(run_dir)]
    # Variables of torchrun's agent would make ranks look for its store.
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("TORCHELASTIC_")
    }
    with ExitStack() as stack:
        ranks: list[subprocess.Popen[bytes]] = []
        stack.callback(end_all, ranks)
        stack.enter_context(forwarding(ranks))
        for local in range(count):
            rank = first + local
            # Rank 0 writes to the terminal; the logs of the others are needed only if they fail.
            log = stack.enter_context(open(run_dir / REPORTS / f"{rank}.log", "wb"))
            own = {"RANK": str(rank), "LOCAL_RANK": str(local)}
            ranks.append(
                subprocess.Popen(
                    command,
                    env=inherited | variables | own,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=None if rank == 0 else log,
                    start_new_session=True,  # Ctrl-C reaches this process only; it forwards it once
                    preexec_fn=end_with_parent,
                )
            )
        number, code = _wait(ranks, others)
    return first + number, code


def _wait(
    ranks: list[subprocess.Popen[bytes]], others: Callable[[], int | None]
) -> tuple[int, int]:
    """Wait for all ranks; return the first failed rank, or else the one with the highest code, and
    its exit code. When one fails, the others are killed after `GRACE_SECONDS`."""
    failed: tuple[int, int] | None = None
    deadline: float | None = None
    while any(rank.poll() is None for rank in ranks):
        for number, rank in enumerate(ranks):
            code = rank.poll()
            if failed is None and code is not None and code not in FINE:
                failed = (number, code)
        if deadline is None and (failed or others() is not None):
            deadline = time.monotonic() + GRACE_SECONDS
        if deadline is not None and time.monotonic() > deadline:
            end_all(ranks)
        time.sleep(LOOK_SECONDS)
    codes = [rank.wait() for rank in ranks]
    worst = max(range(len(codes)), key=lambda number: (codes[number] not in FINE, codes[number]))
    return failed or (worst, codes[worst])


def end_all(ranks: Sequence[Process]) -> None:
    """Kill every process that still runs."""
    for rank in ranks:
        if rank.poll() is None:
            rank.kill()
            rank.wait()


@contextmanager
def forwarding(ranks: Sequence[Process], as_signal: signal.Signals | None = None) -> Iterator[None]:
    """Forward stop signals to every process inside the `with` block; ranks then save and exit.

    A second Ctrl-C kills them. `as_signal` is sent instead of the received signal: srun forwards
    USR1 to its tasks, but handles other signals itself.
    """
    interrupts = 0

    def forward(number: int, frame: Any) -> None:
        nonlocal interrupts
        interrupts += number == signal.SIGINT
        for rank in ranks:
            if rank.poll() is None:
                rank.send_signal(signal.SIGKILL if interrupts > 1 else as_signal or number)

    before = {number: signal.signal(number, forward) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
