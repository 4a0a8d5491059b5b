"""Summarise the scores of several fine-tunings: mean and deviation over seeds.

Reads scores.json and manifest.json of fine-tuning outputs. Fine-tunings that differ in more than
the seed (a sweep of learning rates, layers or labels) are separate variants, named by the keys that
differ. `significance` decides whether a difference is clear.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from rich.markup import escape
from rich.table import Table

from pipeline.store.outputs import MANIFEST, Store
from pipeline.tasks.config import RANDOM
from pipeline.tasks.significance import LEVEL, SEEDS, Sample, is_clear
from pipeline.tasks.twins import origin

SEED = "finetune.seed"
LABELS = ("task.train_fraction", "task.train_examples")  # shown as the number of labels instead
CHOSEN_ON_DEV = (
    "the epoch or the threshold was chosen on the set that is scored, so these scores are too high"
)
TITLES = {  # by the split that was scored
    "test": "Scores on the test sets",
    "dev": "Scores on the development sets",
    "part of train": "Scores on held-out parts of the training files",
}
VERDICTS = (
    f"clearly ahead, clearly behind: a t-test over at least {SEEDS} seeds each gives "
    f"p < {LEVEL:g} (it assumes independent seeds). cannot tell: p is larger"
)


@dataclass(frozen=True)
class Score:
    """The scores of one task, encoder and variant over its seeds."""

    task: str
    metric: str
    encoder: str
    values: tuple[float, ...]  # one per seed
    variant: str = ""  # settings that differ from other fine-tunings: "finetune.lr=2e-05"
    run: str = ""  # name of the run, when runs are compared
    train_examples: int = 0
    test_examples: int = 0
    split: str = ""  # split that was scored: test, dev or part of train
    others: tuple[tuple[str, float], ...] = ()  # means of the other metrics
    seeds: tuple[int, ...] = ()  # of the values
    dev_values: tuple[float, ...] = ()  # development score of the chosen epoch, one per seed
    origin: str = ""  # model and tokenizer of the encoder; empty if unknown, see `twins`
    recipe: str = ""  # `variant` without the model, which only random encoders have as settings
    # The content of scores.json, one per seed.
    found: tuple[dict[str, Any], ...] = field(default=(), compare=False, repr=False)

    @property
    def mean(self) -> float:
        """Mean over seeds."""
        return fmean(self.values)

    @property
    def median(self) -> float:
        """Median over seeds."""
        return median(self.values)

    @property
    def deviation(self) -> float:
        """Sample standard deviation over seeds; 0 for a single seed."""
        return stdev(self.values) if len(self.values) > 1 else 0.0

    @property
    def dev_mean(self) -> float | None:
        """Mean development score over seeds; None if it was not recorded."""
        return fmean(self.dev_values) if self.dev_values else None

    @property
    def is_too_high(self) -> bool:
        """True if a seed's epoch or threshold was chosen on the set that is scored."""
        return any(map(chosen_on_scored, self.found))

    @property
    def is_random(self) -> bool:
        """True if the encoder was never trained."""
        return self.encoder == RANDOM or self.encoder.startswith((f"{RANDOM}:", f"{RANDOM} ("))

    @property
    def sample(self) -> Sample:
        """The values as `significance` compares them. One test example is the smallest step."""
        return Sample(self.values, 1 / self.test_examples if self.test_examples else 0)


@dataclass(frozen=True)
class Gain:
    """A score and the score of the same encoder with random weights, its untrained twin."""

    score: Score
    baseline: Score

    @property
    def difference(self) -> float:
        """Difference of the means."""
        return self.score.mean - self.baseline.mean

    @property
    def verdict(self) -> str:
        """The outcome of the test in `significance`, in words."""
        clear = is_clear(self.score.sample, self.baseline.sample)
        if clear is None:
            return "too few seeds"
        if not clear:
            return "cannot tell"
        return "clearly ahead" if self.difference > 0 else "clearly behind"


@dataclass(frozen=True)
class _Tuning:
    """One fine-tuning as read from the store."""

    scores: dict[str, Any]
    settings: dict[str, Any]
    encoder: str
    run: str
    encoders: Sequence[str]  # references of the outputs that it read as its encoders
    origin: str  # see `Score`

    @property
    def is_random(self) -> bool:
        """True if the encoder was never trained."""
        return bool(self.scores["encoder"] == RANDOM)


def chosen_on_scored(found: dict[str, Any]) -> bool:
    """Return True if the epoch or a threshold was chosen on the set that is scored.

    found: the content of scores.json. Formats before 9 do not say it: there a single evaluation
    counts as no choice, also if a threshold was tuned.
    """
    if "chosen_on_scored" in found:
        return bool(found["chosen_on_scored"])
    return found.get("split") == "dev" and len(found.get("dev_scores", ())) != 1


def dev_score(found: dict[str, Any]) -> float | None:
    """Return the development score of the chosen epoch; None for a suite of an earlier version.

    found: the content of scores.json. Formats before 8 have only the scores of all epochs.
    """
    if "dev_score" in found:
        return float(found["dev_score"])
    scores = found.get("dev_scores")
    return float(scores[found["best_epoch"] - 1]) if scores else None


def summarise(
    score_files: Sequence[Path], runs: Sequence[str] = (), unnamed: Sequence[str] = ()
) -> list[Score]:
    """Group fine-tunings by task, encoder, settings and number of labels, in the given order.

    `runs`: the run of each file, if runs are compared; equal encoders of two runs stay separate.
    `unnamed`: settings that variant names leave out.
    """
    tunings = _read(score_files, runs)
    # One score per seed: two label samples of the same size under one seed are not two seeds.
    groups: dict[tuple[Any, ...], dict[int, dict[str, Any]]] = defaultdict(dict)
    for one, differing in zip(tunings, _differing(tunings, unnamed), strict=True):
        task, metric, labels = (one.scores[key] for key in ("task", "metric", "train_examples"))
        split = one.scores.get("split", "")  # earlier versions did not write it
        fitted = {key: value for key, value in differing.items() if not _is_of_model(key)}
        named = _named(differing), _named(fitted)
        key = (task, metric, one.encoder, *named, one.run, labels, split, one.origin)
        groups[key].setdefault(one.scores["seed"], one.scores)
    summarised = []
    for key, by_seed in groups.items():
        task, metric, encoder, variant, recipe, run, labels, split, weights = key
        group = list(by_seed.values())
        values = tuple(scores["score"] for scores in group)
        tested, others = group[0]["test_examples"], _others(group, metric)
        dev_values = tuple(value for one in group if (value := dev_score(one)) is not None)
        summarised.append(
            Score(
                task, metric, encoder, values, variant, run, labels, tested, split, others,
                tuple(by_seed), dev_values if len(dev_values) == len(values) else (), weights,
                recipe, tuple(group),
            )
        )  # fmt: skip
    order = list(dict.fromkeys(score.task for score in summarised))
    return sorted(summarised, key=lambda score: order.index(score.task))


def _read(score_files: Sequence[Path], runs: Sequence[str]) -> list[_Tuning]:
    """Read every fine-tuning; use one name per encoder, even if a run also calls it `pretrain`.

    Encoders of one name (`a/mnli` and `b/mnli`, or two points of a sweep over pretraining) get the
    beginning of their fingerprint.
    """
    names: dict[tuple[str, str], str] = {}
    tunings = []
    for path, run in zip(score_files, runs or [""] * len(score_files), strict=True):
        scores = json.loads(path.read_text())
        manifest = json.loads((path.parent / MANIFEST).read_text())
        encoder = scores["encoder"]
        if manifest["upstream"]:
            encoder = names.setdefault((run, json.dumps(manifest["upstream"])), encoder)
        encoders = [
            ref
            for role, ref in manifest["upstream"].items()
            if role.startswith("tokenizer" if scores["encoder"] == RANDOM else "encoder")
        ]
        weights = origin(manifest, Store(path.parents[2]))
        settings = _settings(manifest["config"])
        tunings.append(_Tuning(scores, settings, encoder, run, encoders, weights))
    sources = defaultdict(set)
    for one in tunings:
        if one.encoders:  # not a suite, whose inputs are fine-tunings
            sources[one.run, one.encoder].add(tuple(one.encoders))
    return [
        replace(one, encoder=_distinct_name(one, tunings))
        if len(sources[one.run, one.encoder]) > 1 and one.encoders
        else one
        for one in tunings
    ]


def _distinct_name(one: _Tuning, tunings: Sequence[_Tuning]) -> str:
    """Return a name with the beginning of a fingerprint; of an untrained twin, with its encoder."""
    if one.is_random and one.origin:
        for other in tunings:
            if (other.run, other.origin) == (one.run, one.origin) and not other.is_random:
                return f"{RANDOM}:{other.encoder}"
    return f"{one.encoder} ({_beginnings(one.encoders)})"


def _beginnings(references: Sequence[str]) -> str:
    """Return the beginnings of the fingerprints of references, `<stage>/<fingerprint>`."""
    return " + ".join(reference.partition("/")[2][:8] for reference in references)


def gains(scores: Sequence[Score]) -> dict[Score, Gain]:
    """Pair each trained encoder's score with that of its untrained twin, of like task and settings.

    The twin has the same model and tokenizer. Scores whose twin is unknown or was not scored are
    left out: other random weights are no baseline.
    """

    def like(s: Score) -> tuple[Any, ...]:
        return s.task, s.metric, s.recipe, s.run, s.train_examples, s.origin

    baselines = {like(s): s for s in scores if s.is_random and s.origin}
    pairs = ((s, baselines.get(like(s))) for s in scores)
    return {s: Gain(s, baseline) for s, baseline in pairs if baseline and not s.is_random}


def _others(group: Sequence[dict[str, Any]], metric: str) -> tuple[tuple[str, float], ...]:
    """Return the means of the other metrics that all fine-tunings of a group have."""
    common = [name for name in group[0]["scores"] if all(name in each["scores"] for each in group)]
    return tuple(
        (name, fmean(each["scores"][name] for each in group)) for name in common if name != metric
    )


def _differing(tunings: Sequence[_Tuning], unnamed: Sequence[str]) -> list[dict[str, Any]]:
    """Return, per fine-tuning, the settings in which those of its task and run differ.

    Seeds are not settings.
    """
    alike: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for one in tunings:
        alike[one.scores["task"], one.run].append(one.settings)
    found = []
    for one in tunings:
        own, others = one.settings, alike[one.scores["task"], one.run]
        found.append(
            {
                key: own[key]
                for key in sorted(own.keys() - {*unnamed})
                # Only random encoders have a model among their settings; others have an input.
                if any(
                    each.get(key) != own[key]
                    for each in others
                    if key in each or not _is_of_model(key)
                )
            }
        )
    return found


def _is_of_model(key: str) -> bool:
    return key.startswith("model.")


def _named(settings: Mapping[str, Any]) -> str:
    """Return settings as "key=value, key=value"."""
    return ", ".join(f"{key}={_short(value)}" for key, value in settings.items())


def _short(value: Any) -> str:
    """Return a setting as text; lists are counted only, as they may name documents or labels."""
    return f"({len(value)} given)" if isinstance(value, list | dict) else str(value)


def _settings(config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a fine-tuning by full key, without the seed."""
    return {
        f"{section}.{key}": value
        for section in ("task", "finetune", "model")
        for key, value in config.get(section, {}).items()
        if f"{section}.{key}" != SEED
    }


def scores_table(outputs: Sequence[Path]) -> Table:
    """Return a table of the scores of finished fine-tunings, summarised over seeds."""
    scores = summarise([path / "scores.json" for path in outputs])
    beside = gains(scores)
    columns = {
        "task": [score.task for score in scores],
        "metric": [score.metric for score in scores],
        "encoder": [score.encoder for score in scores],
        "settings": [score.variant for score in scores],
        "seeds": [str(len(score.values)) for score in scores],
        "mean": [mean_and_deviation(score) for score in scores],
        "median": [f"{100 * score.median:.1f}" for score in scores],
        "over random": [_verdict(beside.get(score)) for score in scores],
    }
    splits = list(dict.fromkeys(score.split for score in scores))
    if len(splits) > 1:
        columns["scored on"] = [score.split for score in scores]
    shown = {heading: cells for heading, cells in columns.items() if any(cells)}
    notes = [CHOSEN_ON_DEV] if any(score.is_too_high for score in scores) else []
    notes += [VERDICTS] if beside else []
    table = Table(
        title=TITLES.get(splits[0], "Scores") if len(splits) == 1 else "Scores",
        title_justify="left",
        caption=". ".join(notes),
        caption_justify="left",
    )
    for heading in shown:
        is_text = heading in ("task", "metric", "encoder", "settings", "scored on")
        is_short = heading in ("seeds", "mean", "median")
        table.add_column(
            heading, justify="left" if is_text else "right", overflow="fold", no_wrap=is_short
        )
    for row in zip(*shown.values(), strict=True):
        table.add_row(*map(escape, row))
    return table


def mean_and_deviation(score: Score) -> str:
    """Format as `71.2 ± 0.5`; for a single seed only the mean."""
    deviation = f" ± {100 * score.deviation:.1f}" if len(score.values) > 1 else ""
    return f"{100 * score.mean:.1f}{deviation}"


def _verdict(gain: Gain | None) -> str:
    if gain is None:
        return ""
    return f"{100 * gain.difference:+.1f} ({gain.verdict})"
