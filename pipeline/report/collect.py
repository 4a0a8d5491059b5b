"""Reads the outputs a report is about: manifests, run.json, and the journals of pretraining."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from data_prep.errors import SesameError
from pipeline.pages.wording import named
from pipeline.store.outputs import MANIFEST, run_facts_path
from pipeline.workflow.stage import STAGE_ORDER


@dataclass(frozen=True)
class Made:
    """One finished output: what it is, how it came about, where it lies."""

    run: str  # empty unless runs are compared
    stage: str
    label: str
    path: Path
    manifest: dict[str, Any]
    facts: dict[str, Any]  # run.json

    @property
    def counts(self) -> dict[str, Any]:
        """What the stage counted."""
        counts: dict[str, Any] = self.manifest["counts"]
        return counts

    @property
    def config(self) -> dict[str, Any]:
        """The result keys that shaped it, by section."""
        config: dict[str, Any] = self.manifest["config"]
        return config

    @property
    def reference(self) -> str:
        """How the store names it."""
        return f"{self.stage}/{self.manifest['fingerprint']}"

    @property
    def title(self) -> str:
        """What the page calls it."""
        return named(self.run, self.label or self.stage)

    @property
    def seconds(self) -> float:
        """How long it took; run.json knows the last launch only, pretraining's journal all."""
        spent = sum(seconds for _, seconds in points(self.lines("timing.jsonl"), "seconds"))
        return max(float(self.facts["seconds"]), spent)

    def json(self, name: str) -> dict[str, Any]:
        """One of its JSON files."""
        content: dict[str, Any] = _load(self.path / name)
        return content

    def lines(self, name: str) -> list[dict[str, Any]]:
        """One of its files of JSON lines; empty where it wrote none."""
        path = self.path / name
        if not path.exists():
            return []
        return [_parse(line, path, n) for n, line in enumerate(path.open(), 1)]


@dataclass(frozen=True)
class Collected:
    """Everything a report is about, in the order of the flow."""

    made: list[Made]
    runs: list[str]  # that were asked for by name

    def of(self, stage: str) -> list[Made]:
        """The outputs of a stage, each once though several runs may share it."""
        once: dict[str, Made] = {}
        for made in self.every(stage):
            once.setdefault(made.reference, made)
        return list(once.values())

    def every(self, stage: str) -> list[Made]:
        """The outputs of a stage as often as runs have them."""
        return [made for made in self.made if made.stage == stage]


def collect(inputs: dict[str, Path]) -> Collected:
    """Read the outputs in `inputs`, by role: `<stage>[/<label>]` or `<run>/<stage>[/<label>]`."""
    made = [read_output(role, path) for role, path in inputs.items()]
    runs = list(dict.fromkeys(one.run for one in made if one.run))
    if len(runs) == 1:
        made = [replace(one, run="") for one in made]
    return Collected(sorted(made, key=lambda one: STAGE_ORDER.index(one.stage)), runs)


def read_output(role: str, path: Path) -> Made:
    """A finished output by its role; see `collect`."""
    manifest = _load(path / MANIFEST)
    stage = manifest["stage"]
    run, label = _split(role, stage)
    return Made(run, stage, label, path, manifest, _load(run_facts_path(path)))


def _split(role: str, stage: str) -> tuple[str, str]:
    """Run and label of a role; either may be empty, and labels may have slashes."""
    if role == stage or role.startswith(f"{stage}/"):
        return "", role[len(stage) + 1 :]
    run, _, label = f"{role}/".partition(f"/{stage}/")
    return run, label.rstrip("/")


def _load(path: Path) -> Any:
    try:
        text = path.read_text()
    except OSError as error:
        raise SesameError(
            f"{path}: cannot be read ({error.strerror}); "
            f"remove the folder {path.parent} and run again"
        ) from error
    return _parse(text, path, None)


def _parse(text: str, path: Path, line: int | None) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"{path}, line {line or error.lineno}"
        raise SesameError(
            f"{place}: is no JSON; remove the folder {path.parent} and run again"
        ) from error


def points(lines: Iterable[dict[str, Any]], key: str) -> list[tuple[float, float]]:
    """The values of a key by step, from the lines that have it."""
    return [(line["step"], line[key]) for line in lines if line.get(key) is not None]
