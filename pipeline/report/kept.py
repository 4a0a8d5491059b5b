"""Fine-tuned models that were kept: their form, their scores and the command that uses them."""

import shlex
from collections import Counter
from collections.abc import Sequence

from pipeline.pages.blocks import Column, Table
from pipeline.pages.wording import named, percent
from pipeline.report.collect import Collected, FinishedOutput

OWN_FORM = "sesame"  # every other form is a class of transformers
DEV = "dev"


def kept_table(collected: Collected) -> Table | None:
    """Return one row per kept model; None if there is none.

    A split that was scored has a column, unless it is the development set, which has one anyway.
    """
    models = collected.of("model")
    splits = [split for split in _splits(models) if split != DEV]
    columns = [
        Column("task"), Column("encoder"), Column("seed", True), Column("development", True),
        *(Column(split, True) for split in splits), Column("form"),
    ]  # fmt: skip
    rows = []
    for made in models:
        counts = made.counts
        place = counts["seeds"].index(counts["seed"])
        scored = percent(counts["test_scores"][place])
        split = _split(made)
        dev = scored if split == DEV else percent(counts["dev_scores"][place])
        form = "Sesame's own" if counts["form"] == OWN_FORM else f"transformers, {counts['form']}"
        name = named(made.run, counts["encoder"])
        others = [scored if split == each else "–" for each in splits]
        rows.append([counts["task"], name, str(counts["seed"]), dev, *others, form])
    return (
        Table("Models kept, of several seeds the best by development score", columns, rows)
        if rows
        else None
    )


def _splits(models: Sequence[FinishedOutput]) -> list[str]:
    """Return the splits that were scored, each once."""
    return list(dict.fromkeys(map(_split, models)))


def _split(made: FinishedOutput) -> str:
    return str(made.counts.get("split", "test"))  # the first format did not say it


def predict_commands(collected: Collected) -> list[tuple[str, str]]:
    """Return a command per kept model, with its description."""
    models = collected.of("model")
    names = Counter(_name(made) for made in models)
    commands = []
    for made in models:
        is_only = names[_name(made)] == 1
        reference = _name(made) if is_only else made.manifest["fingerprint"]
        said = f"Predict {made.counts['task']} with the model of {made.counts['encoder']}"
        commands.append((f"sesame predict {shlex.quote(f'model={reference}')} input=<file>", said))
    return commands


def _name(made: FinishedOutput) -> str:
    return f"{made.run or made.facts['name']}/{made.counts['task']}"
