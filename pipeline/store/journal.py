"""Journals: JSON lines with a `step` (metrics, timing, launches) that a resumed run continues."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from data_prep.errors import SesameError
from data_prep.files import write_atomically


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the complete lines of a journal. A last line without its end (being written, or cut off
    by a kill) is left out."""
    if path.exists():
        with open(path) as stream:
            for line in stream:
                if line.endswith("\n"):
                    yield json.loads(line)


class Journal:
    """An append-only file of JSON lines; each line has a `step`.

    `fence` is called before each append and raises if a later launch has taken over.
    """

    def __init__(self, path: Path, fence: Callable[[], None]) -> None:
        self._path, self._fence = path, fence

    def cut(self, step: int) -> None:
        """Remove the lines after `step`, and an incomplete last line."""
        if not self._path.exists():
            return
        kept = []
        for line in self._path.read_text().splitlines(keepends=True):
            if not line.endswith("\n") or json.loads(line)["step"] > step:
                break
            kept.append(line)
        write_atomically(self._path, "".join(kept))

    def append(self, line: dict[str, Any]) -> None:
        """Append a line, without a buffer. Raises `SesameError` if it cannot be written."""
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
        """Flush all lines to disk. Called before a checkpoint is saved."""
        if self._path.exists():
            with open(self._path, "rb") as stream:
                os.fsync(stream.fileno())
