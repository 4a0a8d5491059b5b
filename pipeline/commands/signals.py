"""Signals end any command with one line and the exit code that shells expect, 128 + number.

Pretraining handles them itself while its ranks run: they save first (`training.launch`). Jobs of a
cluster requeue themselves (`cluster.requeue`). Worker processes have these signals blocked, but
fine-tunings beside each other are asked to stop (`workflow.beside`).
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from data_prep.work_units import STOP_SIGNALS


class Stopped(KeyboardInterrupt):
    """A signal asks the command to stop. No handler for errors catches it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = signal.Signals(number)

    @property
    def exit_code(self) -> int:
        """The exit code of a program that this signal ended."""
        return 128 + self.signal


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Raise `Stopped` in the block for the first signal; a second Ctrl-C ends the process at once.

    Does nothing outside the main thread, where Python allows no handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _stop) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, frame: Any) -> None:
    for other in STOP_SIGNALS:  # clean up undisturbed
        signal.signal(other, signal.SIG_IGN)
    signal.signal(signal.SIGINT, _leave)
    raise Stopped(number)


def _leave(number: int, frame: Any) -> None:
    os._exit(128 + number)
