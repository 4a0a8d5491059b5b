"""Report how a training on ranks goes, and stop it early if asked.

The ranks are other processes; rank 0 writes metrics.jsonl. A thread reads it. To stop, it sends
this process the signal that also ends a job: the ranks save a checkpoint and leave.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pipeline.store.journal import read_lines
from pipeline.training.exits import Interrupted
from pipeline.workflow.stage import ReportValue, StoppedEarly, no_report

LOOK_SECONDS = 0.5


@contextmanager
def reporting(
    journal: Path, report: ReportValue, key: str = "heldout_loss", is_numbered: bool = False
) -> Iterator[None]:
    """Call `report` with every value of `key` that is in `journal` by the end of the block.

    With each goes its step, or with `is_numbered` its number, counted from 1.

    If `report` raises `StoppedEarly` while training runs, training is interrupted and the block
    raises it. A training that has ended is not stopped any more.
    """
    if report is no_report:
        yield
        return
    watch = _Watch(journal, report, key, is_numbered)
    with _ignoring_own_signal(watch):
        watch.start()
        try:
            yield
        except Interrupted as error:
            if watch.stopped is not None:
                raise watch.stopped from error
            raise
        finally:
            watch.ended.set()
            watch.join()
    with suppress(StoppedEarly):
        watch.report_new()


class _Watch(threading.Thread):
    """Reads the journal until `ended` is set, or until the report stops the training."""

    def __init__(self, journal: Path, report: ReportValue, key: str, is_numbered: bool) -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self.stopped: StoppedEarly | None = None
        self._journal, self._report, self._last = journal, report, 0
        self._key, self._is_numbered = key, is_numbered

    def run(self) -> None:
        while not self.ended.wait(LOOK_SECONDS):
            try:
                self.report_new()
            except StoppedEarly as error:
                self.stopped = error
                os.kill(os.getpid(), signal.SIGUSR1)
                return

    def report_new(self) -> None:
        """Report the values that were not reported yet."""
        lines = (line for line in read_lines(self._journal) if self._key in line)
        for number, line in enumerate(lines, 1):
            step = int(line["step"])
            if step > self._last:
                self._last = step
                self._report(number if self._is_numbered else step, float(line[self._key]))


@contextmanager
def _ignoring_own_signal(watch: _Watch) -> Iterator[None]:
    """Ignore the watch's signal if it arrives when no ranks run; others go to the usual handler."""
    before: Any = signal.getsignal(signal.SIGUSR1)

    def handle(number: int, frame: Any) -> None:
        if watch.stopped is None and callable(before):
            before(number, frame)

    signal.signal(signal.SIGUSR1, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)
