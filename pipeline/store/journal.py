"""Lines of JSON by step (metrics, timing, launches) that a resumed run continues."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from data_prep.errors import SesameError
from data_prep.files import write_atomically


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a journal; one that is being written, or that a kill has torn, is not."""
    if path.exists():
        with open(path) as stream:
            for line in stream:
                if line.endswith("\n"):
                    yield json.loads(line)


class Journal:
    """An append-only file of lines that each have a `step`; `fence` stops an outdated writer."""

    def __init__(self, path: Path, fence: Callable[[], None]) -> None:
        self._path, self._fence = path, fence

    def cut(self, step: int) -> None:
        """Drop what was written after `step`, and a line a kill has torn."""
        if not self._path.exists():
            return
        kept = []
        for line in self._path.read_text().splitlines(keepends=True):
            if not line.endswith("\n") or json.loads(line)["step"] > step:
                break
            kept.append(line)
        write_atomically(self._path, "".join(kept))

    def append(self, line: dict[str, Any]) -> None:
        """Add a line; it reaches the file at once."""
        self._fence()
        try:
            with open(self._path, "a") as stream:
                stream.write(json.dumps(line, allow_nan=False) + "\n")
        except OSError as error:
            raise SesameError(
                f"{self._path} cannot be written ({error.strerror}); make room on the disk and run "
                "the same command again: it goes on from the last checkpoint"
            ) from error

    def sync(self) -> None:
        """Make all lines durable, so that no checkpoint is ahead of them."""
        if self._path.exists():
            with open(self._path, "rb") as stream:
                os.fsync(stream.fileno())
