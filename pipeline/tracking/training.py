"""The data of a pretraining that dashboards show, read from its folder in the store.

Reads the request or manifest, metrics.jsonl and timing.jsonl. Writes `.tracking/id` once, so that
every launch and `sesame sync` use the same wandb run.
"""

import heapq
import json
import sys
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from data_prep.files import write_atomically
from pipeline.store.checkpoints import CHECKPOINTS, checkpoints
from pipeline.store.journal import read_lines
from pipeline.store.outputs import Output, Store, package_versions, run_facts_path

FOLDER = ".tracking"

Row = tuple[int, dict[str, float]]  # a step and its numbers


@dataclass(frozen=True)
class Training:
    """A finished or unfinished pretraining or fine-tuning in the store."""

    name: str
    output: Output

    @classmethod
    def in_folder(cls, name: str, folder: Path) -> "Training":
        """Return the training whose output is `folder`, a folder of a store."""
        place = folder.absolute()  # not resolved: a stage's folder may be a link out of the store
        store = Store(place.parents[1])
        return cls(name, store.output(place.parent.name, place.name))

    @property
    def store(self) -> Store:
        """The store that contains the training and its inputs."""
        return Store(self.output.path.parents[1])

    @property
    def folder(self) -> Path:
        """The folder for dashboards' files; hidden, so it is not part of the output."""
        return self.output.path / FOLDER

    @property
    def journals(self) -> list[Path]:
        """The files with the numbers of every step."""
        if self.output.stage == "pretrain":
            return [self.output.path / name for name in ("metrics.jsonl", "timing.jsonl")]
        return [self.folder / "metrics.jsonl"]

    @cached_property
    def id(self) -> str:
        """The id of the wandb run; created at first use."""
        path = self.folder / "id"
        if not path.exists():
            self.folder.mkdir(exist_ok=True)
            write_atomically(path, uuid.uuid4().hex[:12])
        return path.read_text()

    def config(self) -> dict[str, Any]:
        """Return the recipe, the fingerprints of all inputs, and package versions.

        The section `corpus` is left out: its paths and patterns are private. Of the task only name,
        kind and metric are shown.
        """
        request = self.output.request()
        before = [output for output in self.store.ancestors(self.output) if output.is_done]
        recipe: dict[str, Any] = {}
        for each in (*(output.request() for output in reversed(before)), request):
            recipe |= {key: value for key, value in each["config"].items() if key != "corpus"}
        if "task" in recipe:  # labels and values of fields are private
            recipe["task"] = {key: recipe["task"].get(key) for key in ("name", "kind", "metric")}
        return recipe | {
            "fingerprints": {
                self.output.stage: self.output.fingerprint,
                "upstream": request["upstream"],
                "all": [output.reference for output in before],
            },
            "versions": self._versions(),
        }

    def _versions(self) -> dict[str, str]:
        if not self.output.is_done:
            return package_versions()
        facts = json.loads(run_facts_path(self.output.path).read_text())
        versions: dict[str, str] = facts["versions"]
        return versions

    def saved_step(self) -> int:
        """Return the step up to which nothing can be rolled back: that of the newest checkpoint.

        A fine-tuning has no checkpoints, and is never rolled back.
        """
        if self.output.stage != "pretrain":
            return sys.maxsize
        saved = checkpoints(self.output.path / CHECKPOINTS)
        return int(saved[-1].name) if saved else 0

    def rows(self, until: int | None = None) -> Iterator[Row]:
        """Yield the numbers of the journals by step, up to step `until`."""
        journals = [read_lines(path) for path in self.journals]
        for step, numbers in by_step(heapq.merge(*journals, key=lambda line: int(line["step"]))):
            if until is not None and step > until:
                return
            yield step, numbers


def by_step(lines: Iterable[dict[str, Any]]) -> Iterator[Row]:
    """Merge consecutive lines of the same step to one row; values that are not numbers are left
    out."""
    for step, group in groupby(lines, key=lambda line: int(line["step"])):
        numbers = {
            key: value
            for line in group
            for key, value in line.items()
            if key != "step" and isinstance(value, int | float)
        }
        if numbers:
            yield step, numbers
