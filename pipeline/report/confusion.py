"""Confusion tables: one fine-tuning of each classification task, label by label."""

from pipeline.pages.blocks import Column, Table
from pipeline.pages.wording import count, share
from pipeline.report.chosen import chosen_finetunings
from pipeline.report.collect import Collected, FinishedOutput

MOST_LABELS = 12  # maximum labels of a table
CONFUSION = "confusion"


def confusion_tables(collected: Collected, share_text: bool) -> dict[str, Table]:
    """Return one table per classification task, by the task's name."""
    return {
        task: _table(task, made, share_text)
        for task, made in chosen_finetunings(collected).items()
        if 0 < len(made.counts.get(CONFUSION, ())) <= MOST_LABELS
    }


def _table(task: str, made: FinishedOutput, share_text: bool) -> Table:
    """Return gold labels in rows, predictions in columns; label names only with share.text."""
    matrix: list[list[int]] = made.counts[CONFUSION]
    labels = [f"label {number}" for number in range(1, len(matrix) + 1)]
    if share_text:
        labels = made.json("scores.json")["labels"]
    columns = (
        Column("gold ↓ predicted →"),
        *(Column(label, True) for label in labels),
        Column("right", True),
    )
    rows = [
        [label, *map(count, row), share(row[place], sum(row))]
        for place, (label, row) in enumerate(zip(labels, matrix, strict=True))
    ]
    encoder, seed = made.counts["encoder"], made.counts["seed"]
    return Table(f"{task}: predictions of {encoder}, seed {seed}", columns, rows)
