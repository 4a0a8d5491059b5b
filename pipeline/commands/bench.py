"""`sesame bench <what>`: measure one subject, print a table and write it to the store."""

import importlib
import json
import pkgutil
from dataclasses import asdict
from pathlib import Path

from rich import print as show
from rich.table import Table

import pipeline.bench
from data_prep.errors import UsageError
from data_prep.files import write_atomically
from pipeline.bench.figures import UNSTEADY, Figure
from pipeline.commands.arguments import Arguments
from pipeline.config.compose import compose_config

BUSY = 0.1  # if other processes use a larger share of the machine, wall times mislead

HELPERS = ("figures", "footprint", "transformers_loop", "turns", "usage")


def subjects() -> list[str]:
    """Return the subjects that can be measured: the modules of `bench` except the helpers."""
    names = (module.name for module in pkgutil.iter_modules(pipeline.bench.__path__))
    return [name for name in names if name not in HELPERS]


def bench(arguments: Arguments) -> None:
    """Measure one subject; write `<store>/bench/<what>.json`."""
    if len(arguments.words) != 1 or arguments.words[0] not in subjects():
        raise UsageError(f"bench: name one of {', '.join(subjects())}")
    config = compose_config(arguments.overrides)
    what = arguments.words[0]
    figures: list[Figure] = importlib.import_module(f"pipeline.bench.{what}").measure(config)
    show(as_table(what, figures))
    path = Path(config.paths.store) / "bench" / f"{what}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps([asdict(figure) for figure in figures], indent=1))
    print(path)


def as_table(what: str, figures: list[Figure]) -> Table:
    """Return the figures as a table."""
    table = Table(title=f"sesame bench {what}", title_justify="left")
    numbers = ("ours", "peer", "ratio", "by CPU time", "others")
    for heading in ("", "ours", "peer", "unit", "ratio", "spread", "by CPU time", "others"):
        table.add_column(heading, justify="right" if heading in numbers else "left")
    for figure in figures:
        ratio = _shown(figure.ratio, ".2f")
        table.add_row(
            figure.name,
            f"{figure.value:,.4g}",
            _shown(figure.peer, ",.4g"),
            figure.unit,
            f"[yellow]{ratio} (unsteady)[/]" if figure.is_unsteady else ratio,
            figure.spread,
            _shown(figure.core_ratio, ".2f"),
            _shown(figure.others, ".0%"),
        )
    table.caption = caption(figures)
    table.caption_justify = "left"
    return table


def caption(figures: list[Figure]) -> str:
    """Return warnings about a busy machine and unsteady ratios; empty if there are none."""
    notes = []
    busiest = max((figure.others or 0.0 for figure in figures), default=0.0)
    if busiest > BUSY:
        notes.append(
            f"other processes used up to {busiest:.0%} of this machine: go by CPU time, or measure "
            "again when it is idle"
        )
    if any(figure.is_unsteady for figure in figures):
        notes.append(
            f"unsteady: the highest round is over {UNSTEADY:g} times the lowest, so that ratio "
            "means nothing"
        )
    return "; ".join(notes)


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
