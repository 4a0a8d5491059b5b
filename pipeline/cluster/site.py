"""The site file: a cluster's settings for jobs, in `$SESAME_SITE` or `./site.yaml`.

    partition: gpu      # for all stages; likewise account, qos, constraint, gpus, cpus, memory
    time: 24:00:00
    modules: [cuda/12.4]
    activate: source ~/venv/bin/activate
    stages:
      shard: {partition: cpu, cpus: 16, gpus: 0}
      pretrain: {gpus: 4, time: 3-00:00:00, extra: [--exclusive]}

Unknown keys and wrong values raise a UsageError that names the file, before any submission.
"""

import os
import re
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
from data_prep.reading.untrusted import SETTINGS_BYTES, read_text
from pipeline.config.compose import literal
from pipeline.workflow.stage import STAGE_ORDER

NOTHING = ("", "~", "null")
# What a value may be: a word of a #SBATCH line or of a command, an option, a line of a script.
WORD = re.compile(r"[^\s\"'\\`$;\x00-\x1f\x7f]+")
LINE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f\x85\u2028\u2029]+")
OPTION = re.compile(rf"--?[A-Za-z][\w-]*(=(?:{LINE.pattern}))?")


@dataclass
class StageSite:
    """Resources that the jobs of a stage request."""

    partition: str | None = execution(None, "the partition")
    account: str | None = execution(None, "the account to charge")
    qos: str | None = execution(None, "the quality of service")
    time: str | None = execution(None, "the time limit, such as 24:00:00 or 2-12")
    constraint: str | None = execution(None, "features that a node must have")
    gpus: int | None = execution(None, "GPUs per node", at_least=0)
    cpus: int | None = execution(None, "CPUs per task", at_least=1)
    memory: str | None = execution(None, "memory per node, such as 64G")
    extra: list[str] = execution([], "more options of sbatch, such as --exclusive")

    def options(self) -> list[str]:
        """Return the settings as options of sbatch."""
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

    def check_text(self, prefix: str) -> None:
        """Raise `UsageError` for a value that is more than one word or option of a script."""
        for name in ("partition", "account", "qos", "time", "constraint", "memory"):
            value = getattr(self, name)
            if value is not None and not WORD.fullmatch(value):
                raise UsageError(
                    f"{prefix}{name}: must be one word without white space or quotes; found "
                    f"{len(value)} characters that are not"
                )
        for number, option in enumerate(self.extra, 1):
            if not isinstance(option, str) or not OPTION.fullmatch(option):
                raise UsageError(
                    f"{prefix}extra: item {number} must be one option of sbatch, --name or "
                    "--name=value, in one line"
                )

    def minutes(self) -> int | None:
        """Return the time limit in minutes, rounded up; parses SLURM's formats."""
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
    """All settings of a site file."""

    modules: list[str] = execution([], "environment modules to load")
    activate: str | None = execution(None, "a shell line that activates the Python environment")
    signal: int = execution(
        120, "seconds before the time limit at which a job saves and stops", at_least=10
    )
    continuation: str = execution(
        "requeue",
        "action of a job that was interrupted: requeue itself, submit a successor (chain), or stop",
        choices=("requeue", "chain", "stop"),
    )
    array: int = execution(8, "tasks of the arrays over work units; 1 = no array", at_least=1)
    at_once: int = execution(4, "tasks of an array that run at the same time", at_least=1)
    shared_store: bool = execution(
        False, "true if all nodes see the store although its disk looks local"
    )
    stages: dict[str, StageSite] = execution({}, "settings per stage")

    def check_text(self, prefix: str) -> None:
        """Raise `UsageError` for a value that is more than one word, option or line of a script."""
        super().check_text(prefix)
        for number, module in enumerate(self.modules, 1):
            if not isinstance(module, str) or not WORD.fullmatch(module):
                raise UsageError(
                    f"modules: item {number} must be one module; write each as an item of its own"
                )
        if self.activate is not None and not LINE.fullmatch(self.activate):
            raise UsageError("activate: must be one line; put several commands into a script")

    def of(self, stage: str) -> StageSite:
        """Return a stage's resources: its own settings, else the site's; `extra` is added up."""
        own = self.stages.get(stage, StageSite())
        chosen = {
            item.name: getattr(self, item.name)
            if getattr(own, item.name) is None
            else getattr(own, item.name)
            for item in fields(StageSite)
        }
        return StageSite(**chosen | {"extra": [*self.extra, *own.extra]})


def site_path() -> Path:
    """Return the path of the site file, which need not exist."""
    return Path(os.environ.get("SESAME_SITE") or "site.yaml")


def read_site() -> Site:
    """Read and check the site file; return defaults if there is none and none was named."""
    path = site_path()
    if not path.exists():
        if os.environ.get("SESAME_SITE"):
            raise UsageError(f"SESAME_SITE={path}: there is no such file")
        return Site()
    try:
        # BaseLoader keeps plain strings: YAML would read the time 24:00:00 as the number 86400.
        content = yaml.load(read_text(path, SETTINGS_BYTES), yaml.BaseLoader) or {}
    except (yaml.YAMLError, RecursionError, TypeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise UsageError(f"{path}{line}: not valid YAML") from error
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
    if "continue" in given:  # a reserved word in Python, so the field has another name
        given["continuation"] = given.pop("continue")
    try:
        site = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Site), given))
        assert isinstance(site, Site)
        check(site)
        site.check_text("")
        for stage, settings in site.stages.items():
            check(settings, f"stages.{stage}.")
            settings.check_text(f"stages.{stage}.")
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
