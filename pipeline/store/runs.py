"""Named runs: the outputs that belong to a name, stored in `<store>/runs/<name>.json`.

`encoder=`, `init.source=` and `runs=` refer to runs, and `sesame clean` keeps the outputs of runs.
A run keeps every output on which work began, until it is forgotten. Its current outputs are those
of the last plan that `run` or `submit` made for it, and those that single stages added since.
"""

import json
import re
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from dataclasses import replace as changed
from difflib import get_close_matches
from pathlib import Path

from data_prep.errors import SesameError, UsageError
from data_prep.files import read_json_object, write_atomically
from pipeline.store.lease import Lease, lease
from pipeline.store.outputs import Output, Store

NAME = re.compile(r"[\w.-]+")
LONGEST_NAME = 100  # a file's name has at most 255 bytes, with what is added to it
FINGERPRINT = re.compile(r"[0-9a-f]{4,16}")  # a fingerprint or its beginning


def similar_names(name: str, names: list[str]) -> str:
    """Return the end of an error message: a similar name, or all names."""
    close = get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]}?" if close else f"; runs here: {', '.join(names) or 'none'}"


@dataclass(frozen=True)
class Entry:
    """One output of a run, and its label in the run."""

    stage: str
    fingerprint: str
    label: str
    is_current: bool = True  # False if a later plan of the run replaced it
    command: str = ""  # the command that makes it, for `sesame repair`; as typed in a shell


class Runs:
    """The named runs of a store."""

    def __init__(self, store: Store):
        self._store = store
        self._folder = store.root / "runs"

    def names(self) -> list[str]:
        """Return all names, sorted."""
        return sorted(path.stem for path in self._folder.glob("*.json"))

    def check(self, name: str, asked: str) -> None:
        """Raise `UsageError` if no run has this name; `asked` is the user's input."""
        names = self.names()
        if name not in names:
            raise UsageError(f"{asked}: no such run{similar_names(name, names)}")

    def named(self, text: str, asked: str) -> str:
        """Return the name of the run that `text` refers to: its name, or the beginning of the
        fingerprint of one of its current outputs. Raises `UsageError` if none or several match."""
        if text in self.names() or not FINGERPRINT.fullmatch(text):
            self.check(text, asked)
            return text
        owners = [
            name
            for name in self.names()
            if any(entry.fingerprint.startswith(text) for entry in self.current(name))
        ]
        if len(owners) > 1:
            raise UsageError(f"{asked}: {', '.join(owners)} have such an output; give a name")
        if not owners:
            self.check(text, asked)
        return owners[0]

    def entries(self, name: str) -> list[Entry]:
        """Return all outputs of a run, earlier ones included; empty for an unused name."""
        path = self._path(name)
        if not path.exists():
            return []
        try:
            return [Entry(**entry) for entry in (read_json_object(path) or {})["outputs"]]
        except (KeyError, TypeError) as error:
            raise SesameError(
                f"{path}: is damaged; move it away, and give the commands of this run again: its "
                "outputs are kept, and are found without it"
            ) from error

    def current(self, name: str) -> list[Entry]:
        """Return the outputs of a run's current plan."""
        return [entry for entry in self.entries(name) if entry.is_current]

    def outputs(self, name: str, stage: str, is_current: bool) -> list[Output]:
        """Return a run's current or earlier outputs of one stage."""
        return [
            self._store.output(stage, entry.fingerprint)
            for entry in self.entries(name)
            if entry.stage == stage and entry.is_current == is_current
        ]

    def record(self, name: str, entries: list[Entry], replace: bool) -> None:
        """Add outputs to a run.

        With `replace` they become the run's current plan. Its previous outputs are kept as earlier
        ones, except those on which no work began. Without it they are added to the current plan.
        """
        with self._held(name):  # jobs of a sweep add to one run at the same time
            known = {(entry.stage, entry.fingerprint) for entry in entries}
            before = [e for e in self.entries(name) if (e.stage, e.fingerprint) not in known]
            if replace:
                before = [changed(e, is_current=False) for e in before if self._is_there(e)]
            self._write(name, before + entries)

    def forget_earlier(self, name: str) -> None:
        """Remove earlier outputs from a run; they stay on disk until `sesame clean`."""
        with self._held(name):
            self._write(name, self.current(name))

    def _held(self, name: str) -> AbstractContextManager[Lease | None]:
        path = self._path(name).with_suffix(".lease")
        return lease(path, lambda: False, lambda text: None)

    def _is_there(self, entry: Entry) -> bool:
        output = self._store.output(entry.stage, entry.fingerprint)
        return output.is_done or output.is_begun

    def _write(self, name: str, entries: Iterable[Entry]) -> None:
        document = {"name": name, "outputs": [asdict(entry) for entry in entries]}
        write_atomically(self._path(name), json.dumps(document, indent=1))

    def forget(self, name: str) -> None:
        """Remove a run; its outputs stay on disk until `sesame clean`."""
        self._path(name).unlink()

    def _path(self, name: str) -> Path:
        if len(name) > LONGEST_NAME:
            raise UsageError(f"name={name[:20]}…: use at most {LONGEST_NAME} characters")
        if not NAME.fullmatch(name):
            raise UsageError(f"name={name}: use letters, digits, dots, dashes and underscores only")
        return self._folder / f"{name}.json"
