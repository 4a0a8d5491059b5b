"""Recipes of users are data: they cannot run code, and they do not show the environment.

`./conf` comes before our own conf/ on Hydra's search path. Its files, and the command line, may not
name Python objects: Hydra would call them when a sweep starts. Values of environment variables
(`${oc.env:NAME}`) reach only keys that are declared to hold them, such as paths; every other text
has MASK instead, because configs are written to manifests, pages and dashboards.
"""

import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.config_source import ConfigResult
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import BooleanNode, DictConfig, FloatNode, IntegerNode, Node, OmegaConf

from data_prep.errors import UsageError
from data_prep.fields import walk
from data_prep.progress import console

MASK = "***"
CODE = ("_target_", "()")  # keys that name a Python object: Hydra's, and that of logging
LOGGING = ("job_logging", "hydra_logging")  # sections of Hydra's config that may name a `class`
# Sweepers, launchers, and the samplers of Optuna.
TARGETS = ("hydra_plugins.", "hydra._internal.core_plugins.", "optuna.samplers.")
# Keys of Hydra that Sesame does not obey: their values here, and what to do instead.
UNUSED = {
    "run.dir": (".", "outputs go to the store; set paths.store"),
    "sweep.dir": (
        "${paths.store}/sweeps/${now:%Y-%m-%d_%H-%M-%S}",
        "outputs go to the store; set paths.store",
    ),
    "sweep.subdir": ("${hydra.job.num}", "outputs go to the store; set paths.store"),
    "output_subdir": (None, "the config is kept in the store, beside each output"),
    "job.chdir": (False, "commands never change the folder; use absolute paths"),
}
HANDLERS = ("logging.StreamHandler", "logging.FileHandler", "colorlog.StreamHandler")
NUMBERS = (BooleanNode, FloatNode, IntegerNode)  # keys that can hold no text
SCHEME = "recipes"
ROOTS = ("config.yaml", "config.yml")  # of a Hydra project, as of ours


class UserRecipes(FileConfigSource):
    """A folder of YAML files in which code is refused."""

    @staticmethod
    def scheme() -> str:
        return SCHEME

    def load_config(self, config_path: str) -> ConfigResult:
        """Load a file. Raises `UsageError` if it is not valid YAML, or names code."""
        place = Path(self.path) / self._normalize_file_name(config_path)
        try:
            loaded = super().load_config(config_path)
        except yaml.constructor.ConstructorError as error:
            line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
            raise UsageError(
                f"{place}{line}: {error.problem}; a recipe holds plain values only"
            ) from error
        except (yaml.YAMLError, UnicodeDecodeError, RecursionError, OSError) as error:
            mark = getattr(error, "problem_mark", None)
            line = f", line {mark.line + 1}" if mark else ""
            raise UsageError(
                f"{place}{line}: not valid YAML with lines like `key: value`"
            ) from error
        refuse_code(str(place), OmegaConf.to_container(loaded.config))
        return loaded


class UserConf(SearchPathPlugin):
    """Puts the user's folders before ours on Hydra's search path."""

    ours: Path  # our own conf/; set by `compose`
    added: Path | None = None  # the folder of --config-dir

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for folder in reversed(user_folders()):
            search_path.prepend("user", f"{SCHEME}://{folder}")


def use_folder(folder: Path) -> None:
    """Read recipes and groups from this folder, before `./conf`.

    Raises `UsageError` if there is no such folder, or if it has a root config of its own.
    """
    if not folder.is_dir():
        raise UsageError(f"--config-dir={folder}: there is no such folder")
    if (root := _foreign_root(folder)) is not None:
        raise UsageError(
            f"--config-dir={folder}: {root.name} would take the place of Sesame's own; put your "
            "recipes for Sesame into a folder without one"
        )
    UserConf.added = folder.resolve()


def user_folders() -> list[Path]:
    """Return the user's folders of recipes and groups, the first one to be searched first.

    A `./conf` with a root config belongs to another project that uses Hydra, and is left out.
    """
    folders = [UserConf.added] if UserConf.added is not None else []
    user = Path.cwd() / "conf"
    if not user.is_dir() or user.resolve() == UserConf.ours.resolve():
        return folders
    root = _foreign_root(user)
    if root is None:
        return [*folders, user]
    _say_once(
        f"./conf/{root.name} belongs to another Hydra project, so Sesame reads nothing in ./conf; "
        "recipes for Sesame go into a folder of their own: --config-dir=<folder>"
    )
    return folders


def _foreign_root(folder: Path) -> Path | None:
    return next((path for name in ROOTS if (path := folder / name).exists()), None)


@functools.cache
def _say_once(text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)


def refuse_code(place: str, value: Any) -> None:
    """Raise `UsageError`, naming `place`, if a value has a key that names a Python object."""
    for key in _keys(value):
        if key in CODE:
            raise UsageError(
                f"{place}: {key} would run code, which recipes and the command line cannot; "
                "remove it"
            )


def _keys(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, dict | list):
            yield from _keys(item)


def check_hydra(hydra: DictConfig) -> None:
    """Raise `UsageError` if Hydra's own config would call anything but its plugins and handlers.

    This looks at the composed result, whichever file a value came from.
    """
    config: dict[str, Any] = OmegaConf.to_container(hydra)  # type: ignore[assignment]
    if config.get("callbacks"):
        raise UsageError(
            "hydra.callbacks: would run code, which recipes and the command line cannot; remove it"
        )
    if (config.get("sweeper") or {}).get("custom_search_space"):
        raise UsageError(
            "hydra.sweeper.custom_search_space: would run code, which recipes and the command line "
            "cannot; use hydra.sweeper.params"
        )
    for key, (ours, remedy) in UNUSED.items():
        if (value := _select(config, key)) != ours:
            raise UsageError(f"hydra.{key}={value}: Sesame does not use it; {remedy}")
    for section, value in config.items():
        targets = _values(value, "_target_") if section not in LOGGING else []
        for target in targets:
            if not str(target).startswith(TARGETS):
                raise UsageError(f"hydra.{section}: _target_={target} is no plugin of Hydra")
    for section in LOGGING:
        named = [*_values(config.get(section), "class"), *_values(config.get(section), "()")]
        for name in named:
            if name not in HANDLERS and not str(name).startswith("colorlog."):
                raise UsageError(f"hydra.{section}: {name} is no handler that Sesame knows")


def _select(config: dict[str, Any], key: str) -> Any:
    for part in key.split("."):
        config = config[part]
    return config


def _values(value: Any, name: str) -> Iterator[Any]:
    items = value.items() if isinstance(value, dict) else enumerate(value or ())
    for key, item in items:
        if key == name:
            yield item
        elif isinstance(item, dict | list):
            yield from _values(item, name)


class Environment:
    """The resolver of `${oc.env:NAME,default}`: masks values in keys not declared to hold them."""

    def __init__(self, config: Any) -> None:
        """`config`: an instance of the schema; its fields declare what they may hold."""
        self.holders = {key for key, rule, _ in walk(config) if rule.holds_environment}
        self._said: set[str] = set()

    def resolve(self, name: str, *default: str | None, _node_: Node) -> str | None:
        """Return the variable's value, or MASK; `default` is used if the variable is not set."""
        key = re.sub(r"\[\d+\]", "", str(_node_._get_full_key(None)))
        if name not in os.environ:
            if not default:
                raise UsageError(f"{key}: the environment variable {name} is not set")
            return default[0]
        if self._may_hold(key) or isinstance(_node_, NUMBERS):
            return os.environ[name]
        if key not in self._said:
            self._said.add(key)
            console.print(
                f"{key}: shows {MASK} instead of the environment variable {name}; to show the "
                "value, write it there",
                markup=False,
                soft_wrap=True,
            )
        return MASK

    def _may_hold(self, key: str) -> bool:
        is_holder = any(key == name or key.startswith(f"{name}.") for name in self.holders)
        return is_holder or key.startswith("hydra.")

    def refuse_copies(self, raw: DictConfig) -> None:
        """Raise `UsageError` if another key copies one that may hold the environment."""
        names = "|".join(re.escape(name) for name in sorted(self.holders))
        copies = re.compile(rf"\$\{{[^}}]*(?<![\w.])\.*({names})(?!\w)")
        for key, text in _interpolations(OmegaConf.to_container(raw), ""):
            found = copies.search(text)
            if found and not self._may_hold(key):
                raise UsageError(
                    f"{key}: copies {found[1]}, which may hold a value of the environment; write "
                    "the value itself"
                )


def _interpolations(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for name, item in items:
            yield from _interpolations(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, str) and "${" in value:
        yield key, value
