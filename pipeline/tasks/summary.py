"""What the scores of several fine-tunings say together: mean and deviation over seeds.

Fine-tunings that differ in more than the seed (a sweep of learning rates, layers or labels) are
kept apart, and told apart by the keys that differ.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from rich.markup import escape
from rich.table import Table

from pipeline.store.outputs import MANIFEST
from pipeline.tasks.config import AVERAGE

RANDOM = "random"  # the label of an encoder that was never trained
SEED = "finetune.seed"
LABELS = ("task.train_fraction", "task.train_examples")  # told by the number of labels itself


@dataclass(frozen=True)
class Score:
    """One task and encoder over its seeds."""

    task: str
    metric: str
    encoder: str
    values: tuple[float, ...]
    variant: str = ""  # settings that tell it from others of the task: "finetune.lr=2e-05"
    run: str = ""  # where runs are compared
    train_examples: int = 0
    test_examples: int = 0
    split: str = ""  # what the values were measured on
    others: tuple[tuple[str, float], ...] = ()  # means of the other metrics

    @property
    def mean(self) -> float:
        """Over seeds."""
        return fmean(self.values)

    @property
    def median(self) -> float:
        """Over seeds."""
        return median(self.values)

    @property
    def deviation(self) -> float:
        """Sample deviation over seeds; 0 for a single one."""
        return stdev(self.values) if len(self.values) > 1 else 0.0

    @property
    def is_random(self) -> bool:
        """Whether its encoder was never trained."""
        return self.encoder == RANDOM


@dataclass(frozen=True)
class Gain:
    """A score beside that of the same encoder with random weights."""

    score: Score
    baseline: Score

    @property
    def difference(self) -> float:
        """Of the means."""
        return self.score.mean - self.baseline.mean

    @property
    def is_clear(self) -> bool | None:
        """Whether means ± deviations do not overlap; None where a single seed has no deviation."""
        if min(len(self.score.values), len(self.baseline.values)) < 2:
            return None
        return abs(self.difference) > self.score.deviation + self.baseline.deviation


@dataclass(frozen=True)
class _Tuning:
    """One fine-tuning as it lies in the store."""

    scores: dict[str, Any]
    settings: dict[str, Any]
    encoder: str
    run: str

    @property
    def split(self) -> str:
        """What it is scored on, as `TaskConfig.test` says; nothing of its own for a suite."""
        if self.settings.get("task.metric") == AVERAGE:
            return ""
        if self.settings.get("task.test") or self.settings.get("task.test_documents"):
            return "test"
        return "dev" if self.settings.get("task.dev") else "part of train"


def summarise(
    score_files: Sequence[Path], runs: Sequence[str] = (), untold: Sequence[str] = ()
) -> list[Score]:
    """Group fine-tunings by task, then encoder, settings and labels, in the order they come.

    `runs`, where given, has the run of each file: equal encoders of two runs stay apart. `untold`
    are settings that variants leave out.
    """
    tunings = _read(score_files, runs)
    # By seed: two samples of as many labels under one seed are not two seeds.
    groups: dict[tuple[Any, ...], dict[int, dict[str, Any]]] = defaultdict(dict)
    for one, variant in zip(tunings, _variants(tunings, untold), strict=True):
        task, metric, labels = (one.scores[key] for key in ("task", "metric", "train_examples"))
        key = (task, metric, one.encoder, variant, one.run, labels, one.split)
        groups[key].setdefault(one.scores["seed"], one.scores)
    summarised = []
    for (task, metric, encoder, variant, run, labels, split), by_seed in groups.items():
        group = list(by_seed.values())
        values = tuple(scores["score"] for scores in group)
        tested, others = group[0]["test_examples"], _others(group, metric)
        summarised.append(
            Score(task, metric, encoder, values, variant, run, labels, tested, split, others)
        )
    order = list(dict.fromkeys(score.task for score in summarised))
    return sorted(summarised, key=lambda score: order.index(score.task))


def _read(score_files: Sequence[Path], runs: Sequence[str]) -> list[_Tuning]:
    """Every fine-tuning; an encoder has one name, though a run may call it `pretrain` as well."""
    names: dict[tuple[str, str], str] = {}
    tunings = []
    for path, run in zip(score_files, runs or [""] * len(score_files), strict=True):
        scores = json.loads(path.read_text())
        manifest = json.loads((path.parent / MANIFEST).read_text())
        encoder = scores["encoder"]
        if manifest["upstream"]:
            encoder = names.setdefault((run, json.dumps(manifest["upstream"])), encoder)
        tunings.append(_Tuning(scores, _settings(manifest["config"]), encoder, run))
    return tunings


def gains(scores: Sequence[Score]) -> dict[Score, Gain]:
    """Each trained encoder's score beside the random one's of the same task and settings."""

    def like(s: Score) -> tuple[Any, ...]:
        return s.task, s.metric, s.variant, s.run, s.train_examples

    baselines = {like(s): s for s in scores if s.is_random}
    pairs = ((s, baselines.get(like(s))) for s in scores)
    return {s: Gain(s, baseline) for s, baseline in pairs if baseline and not s.is_random}


def _others(group: Sequence[dict[str, Any]], metric: str) -> tuple[tuple[str, float], ...]:
    """The means of the metrics that all of a group have, besides its own."""
    common = [name for name in group[0]["scores"] if all(name in each["scores"] for each in group)]
    return tuple(
        (name, fmean(each["scores"][name] for each in group)) for name in common if name != metric
    )


def _variants(tunings: Sequence[_Tuning], untold: Sequence[str]) -> list[str]:
    """What tells each fine-tuning from others of its task and run, seeds apart: "key=value, …"."""
    alike: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for one in tunings:
        alike[one.scores["task"], one.run].append(one.settings)
    told = []
    for one in tunings:
        own, others = one.settings, alike[one.scores["task"], one.run]
        keys = [
            key
            for key in sorted(own.keys() - {*untold})
            if any(each.get(key) != own[key] for each in others)
        ]
        told.append(", ".join(f"{key}={_short(own[key])}" for key in keys))
    return told


def _short(value: Any) -> str:
    """A setting; lists may name documents and labels, which stay home."""
    return f"({len(value)} given)" if isinstance(value, list | dict) else str(value)


def _settings(config: dict[str, Any]) -> dict[str, Any]:
    """The settings of a fine-tuning by full key, without its seed and the model."""
    return {
        f"{section}.{key}": value
        for section in ("task", "finetune")
        for key, value in config[section].items()
        if f"{section}.{key}" != SEED
    }


def scores_table(outputs: Sequence[Path]) -> Table:
    """What fine-tunings scored, over their seeds."""
    scores = summarise([path / "scores.json" for path in outputs])
    beside = gains(scores)
    columns = {
        "task": [score.task for score in scores],
        "metric": [score.metric for score in scores],
        "encoder": [score.encoder for score in scores],
        "settings": [score.variant for score in scores],
        "seeds": [str(len(score.values)) for score in scores],
        "mean": [_mean(score) for score in scores],
        "median": [f"{100 * score.median:.1f}" for score in scores],
        "over random": [_verdict(beside.get(score)) for score in scores],
    }
    shown = {heading: cells for heading, cells in columns.items() if any(cells)}
    table = Table(title="Scores on the test sets", title_justify="left")
    for heading in shown:
        is_text = heading in ("task", "metric", "encoder", "settings")
        is_short = heading in ("seeds", "mean", "median")
        table.add_column(
            heading, justify="left" if is_text else "right", overflow="fold", no_wrap=is_short
        )
    for row in zip(*shown.values(), strict=True):
        table.add_row(*map(escape, row))
    return table


def _mean(score: Score) -> str:
    deviation = f" ± {100 * score.deviation:.1f}" if len(score.values) > 1 else ""
    return f"{100 * score.mean:.1f}{deviation}"


def _verdict(gain: Gain | None) -> str:
    if gain is None:
        return ""
    said = {True: "clear", False: "within deviations", None: "one seed"}[gain.is_clear]
    return f"{100 * gain.difference:+.1f} ({said})"
