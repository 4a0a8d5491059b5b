"""Named runs: which outputs belong to a name, kept in `<store>/runs/<name>.json`.

Runs are what `encoder=`, `init.source=` and `runs=` refer to, and what keeps outputs from `clean`.
"""

import json
import re
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path

from data_prep.errors import UsageError
from data_prep.files import write_atomically
from pipeline.lease import lease
from pipeline.store import Output, Store

NAME = re.compile(r"[\w.-]+")
FINGERPRINT = re.compile(r"[0-9a-f]{4,16}")  # or its beginning


def near(name: str, names: list[str]) -> str:
    """What may have been meant by a name, as the end of an error."""
    close = get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]}?" if close else f"; runs here: {', '.join(names) or 'none'}"


@dataclass(frozen=True)
class Entry:
    """One output of a run and what the run calls it."""

    stage: str
    fingerprint: str
    label: str


class Runs:
    """The named runs of a store."""

    def __init__(self, store: Store):
        self._store = store
        self._folder = store.root / "runs"

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(path.stem for path in self._folder.glob("*.json"))

    def check(self, name: str, asked: str) -> None:
        """Refuse a name that no run has; `asked` is how it was typed."""
        names = self.names()
        if name not in names:
            raise UsageError(f"{asked}: no such run{near(name, names)}")

    def named(self, text: str, asked: str) -> str:
        """The run of a name, or the one with an output whose fingerprint begins so."""
        if text in self.names() or not FINGERPRINT.fullmatch(text):
            self.check(text, asked)
            return text
        owners = [
            name
            for name in self.names()
            if any(entry.fingerprint.startswith(text) for entry in self.entries(name))
        ]
        if len(owners) > 1:
            raise UsageError(f"{asked}: {', '.join(owners)} have such an output; give a name")
        if not owners:
            self.check(text, asked)
        return owners[0]

    def entries(self, name: str) -> list[Entry]:
        """What belongs to a run; nothing for a name not used yet."""
        path = self._path(name)
        if not path.exists():
            return []
        return [Entry(**entry) for entry in json.loads(path.read_text())["outputs"]]

    def outputs(self, name: str, stage: str) -> list[Output]:
        """A run's outputs of one stage."""
        return [
            self._store.output(stage, entry.fingerprint)
            for entry in self.entries(name)
            if entry.stage == stage
        ]

    def record(self, name: str, entries: list[Entry], replace: bool) -> None:
        """Remember a run's outputs: as the whole run, or besides those it has."""
        path = self._path(name)
        with lease(path.with_suffix(".lease"), lambda: False, lambda text: None):
            self._write(path, name, entries, replace)  # jobs of a sweep add to one run at once

    def _write(self, path: Path, name: str, entries: list[Entry], replace: bool) -> None:
        if not replace:
            known = {(entry.stage, entry.fingerprint) for entry in entries}
            before = [e for e in self.entries(name) if (e.stage, e.fingerprint) not in known]
            entries = before + entries
        document = {"name": name, "outputs": [asdict(entry) for entry in entries]}
        write_atomically(path, json.dumps(document, indent=1))

    def forget(self, name: str) -> None:
        """Drop a name; its outputs stay until `sesame clean`."""
        self._path(name).unlink()

    def _path(self, name: str) -> Path:
        if not NAME.fullmatch(name):
            raise UsageError(f"name={name}: use letters, digits, dots, dashes and underscores only")
        return self._folder / f"{name}.json"
