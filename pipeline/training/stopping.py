"""A request to stop training: preemption, SLURM's time limit, Ctrl-C."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from data_prep.work_units import STOP_SIGNALS


class StopRequest:
    """Remembers that a stop signal was received; training looks at it after each step."""

    def __init__(self) -> None:
        self.came = False

    def listen(self) -> None:
        """Install the handlers for `STOP_SIGNALS` in this process."""
        for number in STOP_SIGNALS:
            signal.signal(number, self._note)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Install the handlers inside the `with` block; a second Ctrl-C ends it at once.

        Does nothing outside the main thread, where Python allows no handlers.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
        self.listen()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: Any) -> None:
        if self.came and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.came = True
