"""Config fields that declare their meaning, their limits, and whether they shape the result.

A *result* key enters the fingerprint of the stages that read it. An *execution* key (workers,
devices, paths) does not, so that a rerun on another machine finds the existing output.
"""

from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from math import isfinite
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from data_prep.errors import UsageError


@dataclass(frozen=True)
class Rule:
    """The meaning and limits of a config field; stored in the dataclass field's metadata."""

    is_result: bool
    help: str
    choices: tuple[str, ...] = ()
    at_least: float | None = None
    at_most: float | None = None
    # True for a field added after outputs existed: its default does not enter fingerprints.
    is_later: bool = False
    # True for paths and names that may come from an environment variable; others are masked.
    holds_environment: bool = False

    def check(self, key: str, value: Any) -> None:
        """Raise UsageError, naming `key`, if `value` is not allowed; None always is."""
        if value is None:
            return
        for item in value if isinstance(value, list) else [value]:
            self._check_choice(key, item)
        if isinstance(value, float) and not isfinite(value):
            raise UsageError(f"{key}={value}: must be a finite number")
        if self.at_least is not None and value < self.at_least:
            raise UsageError(f"{key}={value}: must be at least {self.at_least}")
        if self.at_most is not None and value > self.at_most:
            raise UsageError(f"{key}={value}: must be at most {self.at_most}")

    def _check_choice(self, key: str, value: Any) -> None:
        if self.choices and value not in self.choices:
            close = get_close_matches(str(value), self.choices, n=1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            raise UsageError(f"{key}={value}: must be one of {', '.join(self.choices)}{hint}")


def _declare(default: Any, rule: Rule) -> Any:
    metadata = {"rule": rule}
    if isinstance(default, list | dict) or is_dataclass(default):
        return field(default_factory=_fresh(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def _fresh(default: Any) -> Any:
    if is_dataclass(default):
        return type(default)
    return lambda: default.copy()


def result(default: Any, help: str, **limits: Any) -> Any:
    """Declare a field that shapes the stage's output; `limits` are fields of `Rule`."""
    return _declare(default, Rule(True, help, **limits))


def execution(default: Any, help: str, **limits: Any) -> Any:
    """Declare a field that affects only how, where or how verbosely the work is done."""
    return _declare(default, Rule(False, help, **limits))


def rule_of(item: Field[Any]) -> Rule:
    """Return the rule of a config field; every config field must declare one."""
    rule = item.metadata.get("rule")
    assert isinstance(rule, Rule), f"config field {item.name} declares no rule"
    return rule


def result_keys(config: Any) -> dict[str, Any]:
    """Return the fields of a config dataclass that enter fingerprints, as plain JSON values."""
    return {
        item.name: _plain(getattr(config, item.name))
        for item in fields(config)
        if rule_of(item).is_result
        and not (rule_of(item).is_later and getattr(config, item.name) == _default(item))
    }


def _default(item: Field[Any]) -> Any:
    return item.default if item.default_factory is MISSING else item.default_factory()


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return result_keys(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value


def walk(config: Any, prefix: str = "") -> Iterator[tuple[str, Rule, Any]]:
    """Yield every leaf field of a nested config dataclass as (full key, rule, value)."""
    for item in fields(config):
        value = getattr(config, item.name)
        key = f"{prefix}{item.name}"
        if is_dataclass(value) and not isinstance(value, type):
            yield from walk(value, f"{key}.")
        else:
            yield key, rule_of(item), value


def check(config: Any, prefix: str = "") -> None:
    """Check the limits of every field of a nested config dataclass; raises UsageError."""
    for key, rule, value in walk(config, prefix):
        rule.check(key, value)


def check_types(config: Any, prefix: str = "") -> None:
    """Raise UsageError if a field's value is not of its type, or a number is not finite.

    For configs made of other people's files; Hydra checks those of ours.
    """
    types = get_type_hints(type(config))
    for item in fields(config):
        value = getattr(config, item.name)
        if not _is_of_type(value, types[item.name]):
            found = str(value) if isinstance(value, int | float) else type(value).__name__
            wanted = getattr(types[item.name], "__name__", str(types[item.name]))
            raise UsageError(f"{prefix}{item.name}: must be of type {wanted}, not {found[:40]}")


def _is_of_type(value: Any, kind: Any) -> bool:
    if kind is Any:
        return True
    if get_origin(kind) is list:
        each = get_args(kind)[0]
        return isinstance(value, list) and all(_is_of_type(item, each) for item in value)
    if get_origin(kind) is dict:
        of_key, of_value = get_args(kind)
        return isinstance(value, dict) and all(
            _is_of_type(key, of_key) and _is_of_type(item, of_value) for key, item in value.items()
        )
    if isinstance(kind, UnionType):
        return any(_is_of_type(value, each) for each in get_args(kind))
    if kind is float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and abs(value) < 1e300 and isfinite(value)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)
