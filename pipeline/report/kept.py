"""Fine-tuned models that were kept: their form, their scores and the command that uses them."""

import shlex
from collections import Counter

from pipeline.pages.blocks import Column, Table
from pipeline.pages.wording import named, percent
from pipeline.report.collect import Collected, FinishedOutput

OWN_FORM = "sesame"  # every other form is a class of transformers


def kept_table(collected: Collected) -> Table | None:
    """Return one row per kept model; None if there is none."""
    columns = (
        Column("task"), Column("encoder"), Column("seed", True), Column("development", True),
        Column("test", True), Column("form"),
    )  # fmt: skip
    rows = []
    for made in collected.of("model"):
        counts = made.counts
        place = counts["seeds"].index(counts["seed"])
        scores = [percent(counts[f"{split}_scores"][place]) for split in ("dev", "test")]
        form = "Sesame's own" if counts["form"] == OWN_FORM else f"transformers, {counts['form']}"
        name = named(made.run, counts["encoder"])
        rows.append([counts["task"], name, str(counts["seed"]), *scores, form])
    return (
        Table("Models kept, of several seeds the best by development score", columns, rows)
        if rows
        else None
    )


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
