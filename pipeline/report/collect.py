"""Read the outputs that a report is about: manifests, run.json and pretraining's journals."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from data_prep.errors import SesameError
from pipeline.pages.wording import named
from pipeline.store.outputs import MANIFEST, run_facts_path
from pipeline.workflow.stage import STAGE_ORDER

# Formats of outputs that the page can show, by stage: from the oldest to the current one. Named
# runs may hold older outputs; these are left out, and the page says so.
READABLE = {
    "shard": range(2, 5),
    "tokenizer": range(2, 5),
    "examples": range(1, 4),
    "vectors": range(1, 4),
    "pretrain": range(1, 2),
    "export": range(2, 3),
    "finetune": range(6, 10),
    "model": range(1, 3),
    "layers": range(4, 5),
}


@dataclass(frozen=True)
class FinishedOutput:
    """One finished output: its manifest, its run.json and its folder."""

    run: str  # empty unless runs are compared
    stage: str
    label: str
    path: Path
    manifest: dict[str, Any]
    facts: dict[str, Any]  # run.json

    @property
    def counts(self) -> dict[str, Any]:
        """The counts in the stage's manifest."""
        counts: dict[str, Any] = self.manifest["counts"]
        return counts

    @property
    def config(self) -> dict[str, Any]:
        """The result keys of the output, by section."""
        config: dict[str, Any] = self.manifest["config"]
        return config

    @property
    def reference(self) -> str:
        """The output's reference in the store."""
        return f"{self.stage}/{self.manifest['fingerprint']}"

    @property
    def title(self) -> str:
        """The output's name on the page."""
        return named(self.run, self.label or self.stage)

    @property
    def seconds(self) -> float:
        """Seconds it took: from run.json, for pretraining the sum over all launches."""
        spent = sum(seconds for _, seconds in points(self.lines("timing.jsonl"), "seconds"))
        return max(float(self.facts["seconds"]), spent)

    def json(self, name: str) -> dict[str, Any]:
        """Read one of its JSON files."""
        content: dict[str, Any] = _load(self.path / name)
        return content

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Read one of its JSON lines files; empty if there is none."""
        path = self.path / name
        if not path.exists():
            return []
        return [_parse(line, path, n) for n, line in enumerate(path.open(), 1)]


@dataclass(frozen=True)
class Collected:
    """All outputs that a report is about, in stage order."""

    made: list[FinishedOutput]
    runs: list[str]  # names of the compared runs
    left_out: list[FinishedOutput]  # written by another version in a format that is not READABLE

    def of(self, stage: str) -> list[FinishedOutput]:
        """Return the outputs of a stage, each once, even if several runs share it."""
        once: dict[str, FinishedOutput] = {}
        for made in self.every(stage):
            once.setdefault(made.reference, made)
        return list(once.values())

    def every(self, stage: str) -> list[FinishedOutput]:
        """Return the outputs of a stage, once per run that has them."""
        return [made for made in self.made if made.stage == stage]


def collect(inputs: dict[str, Path]) -> Collected:
    """Read the outputs in `inputs`, by role: `<stage>[/<label>]` or `<run>/<stage>[/<label>]`."""
    made = [read_output(role, path) for role, path in inputs.items()]
    runs = list(dict.fromkeys(one.run for one in made if one.run))
    if len(runs) == 1:
        made = [replace(one, run="") for one in made]
    made = sorted(made, key=lambda one: STAGE_ORDER.index(one.stage))
    shown = [one for one in made if one.manifest["format"] in READABLE[one.stage]]
    return Collected(shown, runs, [one for one in made if one not in shown])


def read_output(role: str, path: Path) -> FinishedOutput:
    """Read a finished output by its role; see `collect`."""
    manifest = _load(path / MANIFEST)
    stage = manifest["stage"]
    run, label = _split(role, stage)
    return FinishedOutput(run, stage, label, path, manifest, _load(run_facts_path(path)))


def _split(role: str, stage: str) -> tuple[str, str]:
    """Return run and label of a role; either may be empty, and labels may contain slashes."""
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
            f"{place}: not JSON; remove the folder {path.parent} and run again"
        ) from error


def points(lines: Iterable[dict[str, Any]], key: str) -> list[tuple[float, float]]:
    """Return (step, value) of a key, from the lines that have it."""
    return [(line["step"], line[key]) for line in lines if line.get(key) is not None]
