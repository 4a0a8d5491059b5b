"""Sweeps: the keys that a command line or a recipe varies, and the points that result.

Hydra's syntax: `a,b`, `choice(…)`, `range(…)`, `glob(…)` on the command line, and
`hydra.sweeper.params` in a recipe. Optuna also takes `interval(…)`.
"""

from dataclasses import dataclass

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.types import IntervalSweep, Override

from data_prep.errors import UsageError
from pipeline.config.compose import (
    HydraChoices,
    hydra_choices,
    parse_overrides,
    prepared,
    result_names,
)
from pipeline.config.unset import BASE, run_name

KEEP = "keep"
LAUNCHER, SWEEPER = "hydra/launcher", "hydra/sweeper"


@dataclass(frozen=True)
class Sweep:
    """The overrides of a sweep, as Hydra takes them."""

    overrides: list[str]  # of the command line; for a grid also those of hydra.sweeper.params
    swept: set[str]  # keys that take several values
    choices: HydraChoices

    @property
    def is_grid(self) -> bool:
        """True if the points are all combinations of the values; False for Optuna."""
        return self.choices.sweeper == "basic"

    @property
    def has_launcher(self) -> bool:
        """True if points do not run one after another in this process."""
        return self.choices.launcher != "basic"

    def points(self) -> list[list[str]]:
        """Return the overrides of every point of a grid, without Hydra's own.

        Raises `UsageError` for another sweeper.
        """
        if not self.is_grid:
            raise UsageError(
                f"{SWEEPER}={self.choices.sweeper}: chooses its points one after another, from the "
                "results; this command needs a grid: leave it out"
            )
        return [without_hydra(point) for point in _combinations(self.overrides)]

    def first(self) -> list[str]:
        """Return the overrides of one point, without Hydra's own, for what all points share."""
        return without_hydra(_first(self.overrides))

    def settings(self, point: list[str]) -> list[str]:
        """Return the overrides of a point that differ between points."""
        return [word for word in point if word.lstrip("+").partition("=")[0] in self.swept]

    def shared(self) -> list[str]:
        """Return the overrides that all points share, without Hydra's own."""
        return without_hydra(unswept(self.overrides))


def read_sweep(overrides: list[str]) -> Sweep:
    """Return the sweep of a command line and its recipe.

    Values of the command line replace those of `hydra.sweeper.params`. All points belong to one
    run: if nobody named it, it is named after what they share.
    """
    ready = prepared(overrides)
    choices = hydra_choices(_first(ready))
    given = {each.key_or_group for each in parse_overrides(ready)}
    written = [f"{key}={value}" for key, value in choices.params.items() if key not in given]
    params = [word for word in prepared(written) if not word.startswith(f"{BASE}=")]
    swept = swept_keys([*ready, *params])
    if choices.sweeper == "basic" and params:
        ready = [*ready, *params, "hydra.sweeper.params=null"]
    if KEEP not in given:
        ready.append(f"{KEEP}=false")  # a sweep's models would fill the disk
    if not choices.name and "name" not in given:
        model = "sweep" if "model" in swept else choices.model
        ready.append(f"name={run_name(ready, model, result_names())}")
    return Sweep(ready, swept, choices)


def swept_keys(overrides: list[str]) -> set[str]:
    """Return the keys that take several values."""
    return {each.key_or_group for each in parse_overrides(overrides) if each.is_sweep_override()}


def unswept(overrides: list[str]) -> list[str]:
    """Return the overrides that all points share, without Hydra's own."""
    parsed = zip(overrides, parse_overrides(overrides), strict=True)
    return without_hydra([text for text, each in parsed if not each.is_sweep_override()])


def without_hydra(overrides: list[str]) -> list[str]:
    """Return the overrides that are not Hydra's own."""
    return [word for word in overrides if not word.lstrip("+~").startswith(("hydra.", "hydra/"))]


def _combinations(overrides: list[str]) -> list[list[str]]:
    [points] = BasicSweeper.split_arguments(parse_overrides(overrides), max_batch_size=None)
    return [list(point) for point in points]


def _first(overrides: list[str]) -> list[str]:
    parsed = zip(overrides, parse_overrides(overrides), strict=True)
    return [_first_value(each) if each.is_sweep_override() else text for text, each in parsed]


def _first_value(override: Override) -> str:
    value = override.value()
    key = override.get_key_element()
    if isinstance(value, IntervalSweep):
        return f"{key}={value.start}"
    first = next(iter(override.sweep_string_iterator()), None)
    if first is None:
        raise UsageError(f"{override.input_line}: matches nothing")
    return f"{key}={first}"
