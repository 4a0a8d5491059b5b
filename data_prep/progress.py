"""Show the progress of long work: a bar on a terminal, a line every 15 seconds in a log."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

LOG_SECONDS = 15.0  # between two lines if there is no terminal

# emoji=False: rich would replace `:top:`, which may be a part of a path, by a picture.
console = Console(stderr=True, highlight=False, emoji=False)


class Bar(Protocol):
    """A progress bar as the working code uses it; `note` sets the text shown behind it."""

    def advance(self, amount: float = 1) -> None: ...

    def note(self, text: str) -> None: ...


class _RichBar:
    def __init__(self, progress: Progress, title: str, total: float):
        self._progress = progress
        self._task = progress.add_task(title, total=total, note="")

    def advance(self, amount: float = 1) -> None:
        self._progress.advance(self._task, amount)

    def note(self, text: str) -> None:
        self._progress.update(self._task, note=text)


class _LogBar:
    def __init__(self, title: str, total: float):
        self._title, self._total = title, total
        self._done, self._note, self._spoke = 0.0, "", time.monotonic()

    def advance(self, amount: float = 1) -> None:
        self._done += amount
        if time.monotonic() - self._spoke >= LOG_SECONDS:
            self._spoke = time.monotonic()
            print(
                f"{self._title}: {self._done:,.0f} of {self._total:,.0f} {self._note}".rstrip(),
                file=sys.stderr,
                flush=True,
            )

    def note(self, text: str) -> None:
        self._note = text


@contextmanager
def progress(title: str, total: float, done: float = 0) -> Iterator[Bar]:
    """Show the progress of `total` units of work under `title`; `done` were finished before."""
    bar: Bar
    if not console.is_terminal:
        bar = _LogBar(title, total)
        bar.advance(done)
        yield bar
        return
    columns = (
        TextColumn("{task.description:<24}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as rich_progress:
        bar = _RichBar(rich_progress, title, total)
        bar.advance(done)
        yield bar
