"""What a cluster asks of its jobs: one file, `$SESAME_SITE` or `./site.yaml`.

    partition: gpu      # of all stages; so may be account, qos, constraint, gpus, cpus, memory
    time: 24:00:00
    modules: [cuda/12.4]
    activate: source ~/venv/bin/activate
    stages:
      shard: {partition: cpu, cpus: 16, gpus: 0}
      pretrain: {gpus: 4, time: 3-00:00:00, extra: [--exclusive]}

Unknown keys and wrong values are refused with the file's name before anything is submitted.
"""

import os
from dataclasses import dataclass, fields
from difflib import get_close_matches
from math import ceil
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from data_prep.errors import UsageError
from data_prep.fields import check, execution
from pipeline.config.compose import literal
from pipeline.workflow.stage import STAGE_ORDER

NOTHING = ("", "~", "null")


@dataclass
class StageSite:
    """What the jobs of a stage ask for."""

    partition: str | None = execution(None, "the partition")
    account: str | None = execution(None, "the account that pays")
    qos: str | None = execution(None, "the quality of service")
    time: str | None = execution(None, "the limit, such as 24:00:00 or 2-12")
    constraint: str | None = execution(None, "features a node must have")
    gpus: int | None = execution(None, "GPUs on each node", at_least=0)
    cpus: int | None = execution(None, "CPUs a task", at_least=1)
    memory: str | None = execution(None, "memory a node, such as 64G")
    extra: list[str] = execution([], "more options of sbatch, such as --exclusive")

    def options(self) -> list[str]:
        """As options of sbatch."""
        given = {
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "time": self.time,
            "constraint": self.constraint,
            "gres": f"gpu:{self.gpus}" if self.gpus else None,
            "cpus-per-task": self.cpus,
            "mem": self.memory,
        }
        return [f"--{key}={value}" for key, value in given.items() if value is not None] + [
            *self.extra
        ]

    def minutes(self) -> int | None:
        """The limit in minutes, rounded up; as SLURM writes times."""
        if self.time is None:
            return None
        days, dash, clock = self.time.rpartition("-")
        parts = [int(part) for part in clock.split(":")]
        if dash:  # days-hours, days-hours:minutes, days-hours:minutes:seconds
            hours, minutes, seconds = [*parts, 0, 0][:3]
        else:  # minutes, minutes:seconds, hours:minutes:seconds
            hours, minutes, seconds = (parts if len(parts) == 3 else [0, *parts, 0])[:3]
        return ceil((int(days or 0) * 24 + hours) * 60 + minutes + seconds / 60)


@dataclass
class Site(StageSite):
    """The whole file."""

    modules: list[str] = execution([], "environment modules to load")
    activate: str | None = execution(None, "a line of shell that makes `python` the right one")
    signal: int = execution(120, "seconds before the time limit to save and leave", at_least=10)
    continuation: str = execution(
        "requeue",
        "what a job does that saved and left early: requeue itself, submit a successor, or stop",
        choices=("requeue", "chain", "stop"),
    )
    array: int = execution(8, "tasks of the arrays over pieces; 1 for no array", at_least=1)
    at_once: int = execution(4, "tasks of an array that run at once", at_least=1)
    shared_store: bool = execution(
        False, "the store is on a disk that nodes see, though it looks local from here"
    )
    stages: dict[str, StageSite] = execution({}, "settings of single stages")

    def of(self, stage: str) -> StageSite:
        """What a stage's jobs ask for: its own settings, else the site's; extras add up."""
        own = self.stages.get(stage, StageSite())
        chosen = {
            item.name: getattr(self, item.name)
            if getattr(own, item.name) is None
            else getattr(own, item.name)
            for item in fields(StageSite)
        }
        return StageSite(**chosen | {"extra": [*self.extra, *own.extra]})


def site_path() -> Path:
    """Where the site's settings are, or would be."""
    return Path(os.environ.get("SESAME_SITE") or "site.yaml")


def read_site() -> Site:
    """The site's settings, checked; defaults where there is no file and none was named."""
    path = site_path()
    if not path.exists():
        if os.environ.get("SESAME_SITE"):
            raise UsageError(f"SESAME_SITE={path}: there is no such file")
        return Site()
    try:
        # Plain strings: YAML would read the time 24:00:00 as the number 86400.
        content = yaml.load(path.read_text(), yaml.BaseLoader) or {}
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise UsageError(f"{path}{line}: no valid YAML") from error
    if not isinstance(content, dict):
        raise UsageError(f"{path}: must have lines like `partition: gpu`")
    return _typed(path, content)


def _typed(path: Path, content: dict[str, Any]) -> Site:
    names = {"continue" if f.name == "continuation" else f.name for f in fields(Site)}
    _check_keys(path, "", content, names)
    stages = content.get("stages") or {}
    _check_keys(path, "stages.", stages, set(STAGE_ORDER))
    for stage, settings in stages.items():
        _check_keys(path, f"stages.{stage}.", settings, {f.name for f in fields(StageSite)})
    given = literal(_without_nothing(content))
    if "continue" in given:  # which Python keeps for itself
        given["continuation"] = given.pop("continue")
    try:
        site = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Site), given))
        assert isinstance(site, Site)
        check(site)
        for stage, settings in site.stages.items():
            check(settings, f"stages.{stage}.")
    except OmegaConfBaseException as error:
        said = str(error).strip().splitlines()[0]
        raise UsageError(f"{path}: {getattr(error, 'full_key', '')}: {said}") from error
    except UsageError as error:
        said = str(error).replace("continuation=", "continue=")
        raise UsageError(f"{path}: {said}") from error
    return site


def _check_keys(path: Path, prefix: str, given: Any, known: set[str]) -> None:
    if not isinstance(given, dict):
        raise UsageError(f"{path}: {prefix.rstrip('.')}: must have settings like `time: 1:00:00`")
    for key in given:
        if key not in known:
            close = get_close_matches(key, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(sorted(known))}"
            raise UsageError(f"{path}: there is no setting {prefix}{key}; {hint}")


def _without_nothing(value: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _without_nothing(item) if isinstance(item, dict) else item
        for key, item in value.items()
        if item not in NOTHING
    }
