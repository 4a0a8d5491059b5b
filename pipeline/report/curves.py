"""Curves of pretrainings from their journals, over steps, or over tokens and time to compare."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pipeline.pages import charts
from pipeline.pages.blocks import Figure
from pipeline.report.collect import FinishedOutput, points


@dataclass(frozen=True)
class Curve:
    """A figure: a key of a journal and, if there is one, its held-out counterpart."""

    key: str
    title: str
    caption: str
    held_out: str = ""
    y_format: str = charts.NUMBER
    zero: bool = False
    journal: str = "metrics.jsonl"


@dataclass(frozen=True)
class Scale:
    """The x axis of curves."""

    x_title: str
    suffix: str = ""  # suffix of the figure's name and title
    seconds: float = 0.0  # seconds per unit, for a scale of time


STEPS, TOKENS = Scale("step"), Scale("tokens")
MINUTES, HOURS = Scale("minutes", "by time", 60), Scale("hours", "by time", 3600)
CURVES = (
    Curve("mlm_loss", "Masked-word loss", "Nats per masked piece.", "heldout_mlm_loss"),
    Curve("mlm_accuracy", "Masked-word accuracy", "Share of masked pieces predicted correctly.",
          "heldout_mlm_accuracy", ".0%", zero=True),
    Curve("pair_loss", "Sentence-pair loss", "Nats per pair.",
          "heldout_pair_loss"),
    Curve("pair_accuracy", "Sentence-pair accuracy", "Share of pairs classified correctly.",
          "heldout_pair_accuracy", ".0%"),
    Curve("forward_loss", "Next-word loss, forward",
          "Nats per word; sampled in training, exact on held-out text.", "heldout_forward_loss"),
    Curve("backward_loss", "Next-word loss, backward",
          "Nats per word; sampled in training, exact on held-out text.", "heldout_backward_loss"),
    Curve("lr", "Learning rate", "As the schedule set it.", zero=True),
    Curve("gradient_norm", "Gradient norm", "Before clipping.", zero=True),
    Curve("tokens_per_second", "Speed", "Tokens per second over all ranks.", y_format="~s",
          zero=True, journal="timing.jsonl"),
    Curve("flop_utilisation", "Model FLOP utilisation",
          "Share of the GPU's peak; on a CPU, of a plain matrix product of the layer's size.",
          y_format=".0%", zero=True, journal="timing.jsonl"),
    Curve("data_wait", "Waiting for data", "Share of time the training loop waits for its loader.",
          y_format=".1%", zero=True, journal="timing.jsonl"),
)  # fmt: skip


@dataclass(frozen=True)
class Journal:
    """The journal files of a pretraining."""

    made: FinishedOutput

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """Losses, accuracies and learning rates by step."""
        return self.made.lines("metrics.jsonl")

    @cached_property
    def timing(self) -> list[dict[str, Any]]:
        """Speeds and waiting times by step."""
        return self.made.lines("timing.jsonl")

    @cached_property
    def restarts(self) -> list[float]:
        """Steps at which later launches continued, without the first launch."""
        return [line["step"] for line in self.made.lines("launches.jsonl")[1:]]

    def points(self, curve: Curve, key: str, scale: Scale) -> list[tuple[float, float]]:
        """Return (x, value) of a key over a scale."""
        lines = self.metrics if curve.journal == "metrics.jsonl" else self.timing
        found = points(lines, key)
        places = self.places([step for step, _ in found], scale)
        return list(zip(places, (value for _, value in found), strict=True))

    def places(self, steps: Sequence[float], scale: Scale) -> list[float]:
        """Return the x of steps on a scale, interpolated between lines of the journal."""
        if scale is STEPS:
            return list(steps)
        if scale is TOKENS:
            known = points(self.metrics, "tokens")
        else:
            seconds = points(self.timing, "seconds")
            passed = np.cumsum([spent for _, spent in seconds]) / scale.seconds
            known = [(step, float(at)) for (step, _), at in zip(seconds, passed, strict=True)]
        xs, ys = zip((0.0, 0.0), *known, strict=True)
        return [float(place) for place in np.interp(steps, xs, ys)]


def time_scale(journals: Sequence[Journal]) -> Scale:
    """Return a scale in hours, or in minutes if no run has taken an hour."""
    return HOURS if max(journal.made.seconds for journal in journals) >= HOURS.seconds else MINUTES


def draw_curves(journals: Sequence[Journal], scale: Scale) -> list[Figure]:
    """Return one figure per available curve; over time only curves with held-out values."""
    chosen = [curve for curve in CURVES if curve.held_out or not scale.seconds]
    figures = [_figure(curve, journals, scale) for curve in chosen]
    return [figure for figure in figures if figure]


def _figure(curve: Curve, journals: Sequence[Journal], scale: Scale) -> Figure | None:
    alone = len(journals) == 1
    series = []
    for number, journal in enumerate(journals):
        if scale.seconds and not journal.timing:
            continue
        training = journal.points(curve, curve.key, scale)
        held_out = journal.points(curve, curve.held_out, scale)
        restarts = journal.places(journal.restarts, scale)
        title = journal.made.title
        if training:
            name = "training" if alone else title
            series.append(charts.Series(name, training, False, number, restarts))
        if held_out:
            name, colour = ("held out", 1) if alone else (title, number)
            series.append(charts.Series(name, held_out, not alone, colour))
    if not series:
        return None
    caption = curve.caption
    if any(line.dashed for line in series):
        caption += " Dashed: on held-out rows."
    name = "-".join([*curve.key.split("_"), *scale.suffix.split()])
    title = f"{curve.title} {scale.suffix}".strip()
    svg = charts.lines(
        name, title, series, x_title=scale.x_title, whole=not scale.seconds,
        y_format=curve.y_format, zero=curve.zero, legend=not alone,
    )  # fmt: skip
    return Figure(name, title, caption, svg)
