"""`sesame bench <what>`: the home of every timing; prints a table and writes it to the store."""

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
from pipeline.bench.figures import Figure
from pipeline.cli import Arguments
from pipeline.compose import compose_config


def subjects() -> list[str]:
    """What can be measured: the modules beside those that help to."""
    names = (module.name for module in pkgutil.iter_modules(pipeline.bench.__path__))
    return [name for name in names if name not in ("figures", "usage")]


def bench(arguments: Arguments) -> None:
    """Measure one subject."""
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
    """The figures for a terminal."""
    table = Table(title=f"sesame bench {what}", title_justify="left")
    for heading in ("", "ours", "peer", "unit", "ratio", "spread"):
        table.add_column(
            heading, justify="right" if heading in ("ours", "peer", "ratio") else "left"
        )
    for figure in figures:
        peer = "" if figure.peer is None else f"{figure.peer:,.4g}"
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        table.add_row(figure.name, f"{figure.value:,.4g}", peer, figure.unit, ratio, figure.spread)
    return table
