"""The site file: a cluster's settings for jobs, in `$SESAME_SITE` or `./site.yaml`.

    partition: gpu      # for all stages; likewise the other fields of `Resources`
    time: 24:00:00
    gpus: a100          # the type; the number follows from trainer.devices
    modules: [cuda/12.4]
    activate: source ~/venv/bin/activate
    stages:
      shard: {partition: cpu, cpus: 16, account: null}
      pretrain: {time: 3-00:00:00, extra: [--exclusive]}

A stage's setting replaces the site's; `null` removes it. `extra` is added to the site's.

Unknown keys and wrong values raise a UsageError that names the file, before any submission.
"""

import os
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from data_prep.errors import UsageError
from data_prep.fields import check, execution
from data_prep.reading.untrusted import SETTINGS_BYTES, read_text
from pipeline.cluster.resources import GPU_STAGES, LINE, WORD, Resources
from pipeline.config.compose import literal
from pipeline.workflow.stage import STAGE_ORDER

NOTHING = ("", "~", "null")


@dataclass
class Site(Resources):
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
    gpu_option: str = execution(
        "gpus-per-node", "option of sbatch that requests GPUs", choices=("gpus-per-node", "gres")
    )
    container: str | None = execution(
        None, "a command that runs its arguments in a container: apptainer exec --nv /sesame.sif"
    )
    scratch: str | None = execution(
        None, "a folder on the node's own disk, such as $TMPDIR, to copy training rows to"
    )
    stages: dict[str, Resources] = execution(
        {}, "complete resources of the stages that have settings of their own"
    )

    def check_text(self, prefix: str) -> None:
        """Raise `UsageError` for a value that is more than one word, option or line of a script."""
        super().check_text(prefix)
        for number, module in enumerate(self.modules, 1):
            if not isinstance(module, str) or not WORD.fullmatch(module):
                raise UsageError(
                    f"modules: item {number} must be one module; write each as an item of its own"
                )
        for name in ("activate", "container", "scratch"):
            value = getattr(self, name)
            if value is not None and not LINE.fullmatch(value):
                raise UsageError(f"{name}: must be one line; put several commands into a script")

    def of(self, stage: str) -> Resources:
        """Return a stage's resources: its own settings, or the site's.

        GPUs of the site hold for the stages that compute on them.
        """
        if stage in self.stages:
            return self.stages[stage]
        common = {item.name: getattr(self, item.name) for item in fields(Resources)}
        return Resources(**common if stage in GPU_STAGES else common | {"gpus": None})

    def with_settings(self, **settings: str | None) -> "Site":
        """Return the site with settings that hold for all stages; None changes nothing."""
        given: dict[str, Any] = {
            name: value for name, value in settings.items() if value is not None
        }
        stages = {name: replace(own, **given) for name, own in self.stages.items()}
        return replace(self, **given, stages=stages)


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
    common = {f.name for f in fields(Resources)}
    for stage, settings in stages.items():
        _check_keys(path, f"stages.{stage}.", settings, common)
    site_wide = {key: value for key, value in content.items() if key in common}
    complete = {stage: _of_stage(stage, site_wide, own) for stage, own in stages.items()}
    given = literal(_without_nothing(content | {"stages": complete}))
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


def _of_stage(stage: str, site_wide: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a stage with the site's, as written in the file."""
    if stage not in GPU_STAGES:
        site_wide = {key: value for key, value in site_wide.items() if key != "gpus"}
    both = (site_wide.get("extra") or [], own.get("extra") or [])
    if "extra" in own and all(isinstance(extra, list) for extra in both):
        own = own | {"extra": [] if own["extra"] in NOTHING else [*both[0], *both[1]]}
    return site_wide | own


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
