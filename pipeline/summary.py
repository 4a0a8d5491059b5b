"""What the scores of several fine-tunings say together: mean and deviation over seeds."""

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from rich.table import Table

from pipeline.graph import Node


@dataclass(frozen=True)
class Score:
    """One task and encoder over its seeds."""

    task: str
    metric: str
    encoder: str
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over seeds."""
        return fmean(self.values)

    @property
    def deviation(self) -> float:
        """Sample deviation over seeds; 0 for a single one."""
        return stdev(self.values) if len(self.values) > 1 else 0.0


def summarise(score_files: list[Path]) -> list[Score]:
    """Group fine-tunings by task and encoder, in the order they come."""
    groups: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for path in score_files:
        scores = json.loads(path.read_text())
        groups[scores["task"], scores["metric"], scores["encoder"]].append(scores["score"])
    return [Score(*group, tuple(values)) for group, values in groups.items()]


def closing_table(nodes: list[Node]) -> Table:
    """What a run ends with on the terminal."""
    files = [
        n.output.path / "scores.json" for n in nodes if n.stage == "finetune" and n.output.is_done
    ]
    table = Table(title="Scores on the test sets", title_justify="left")
    for heading in ("task", "metric", "encoder", "seeds", "mean", "deviation"):
        table.add_column(
            heading, justify="right" if heading in ("seeds", "mean", "deviation") else "left"
        )
    for score in summarise(files):
        table.add_row(
            score.task, score.metric, score.encoder, str(len(score.values)),
            f"{100 * score.mean:.1f}", f"± {100 * score.deviation:.1f}",
        )  # fmt: skip
    return table
