"""The section on pretraining: curves by objective, what was held out, speed, and restarts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.report import charts
from pipeline.report.blocks import (
    Block,
    Column,
    Fact,
    Facts,
    Figure,
    Figures,
    Heading,
    Note,
    Section,
    Table,
)
from pipeline.report.collect import Collected, Made, points
from pipeline.report.wording import count, duration, percent, share, short


@dataclass(frozen=True)
class Curve:
    """A figure: a key of a journal and, where there is one, its held-out counterpart."""

    key: str
    title: str
    caption: str
    held_out: str = ""
    y_format: str = charts.NUMBER
    zero: bool = False
    journal: str = "metrics.jsonl"


CURVES = (
    Curve("mlm_loss", "Masked-word loss", "Nats a masked piece.", "heldout_mlm_loss"),
    Curve("mlm_accuracy", "Masked-word accuracy", "Share of masked pieces guessed right.",
          "heldout_mlm_accuracy", ".0%", zero=True),
    Curve("pair_loss", "Sentence-pair loss", "Nats a pair.",
          "heldout_pair_loss"),
    Curve("pair_accuracy", "Sentence-pair accuracy", "Share of pairs told right.",
          "heldout_pair_accuracy", ".0%"),
    Curve("forward_loss", "Next-word loss, forward", "Nats a word; sampled in training, exact on "
          "held-out text.", "heldout_forward_loss"),
    Curve("backward_loss", "Next-word loss, backward", "Nats a word; sampled in training, exact on "
          "held-out text.", "heldout_backward_loss"),
    Curve("lr", "Learning rate", "As the schedule set it.", zero=True),
    Curve("gradient_norm", "Gradient norm", "Before clipping.", zero=True),
    Curve("tokens_per_second", "Speed", "Tokens a second over all ranks.", y_format="~s",
          zero=True, journal="timing.jsonl"),
    Curve("flop_utilisation", "Model FLOP utilisation",
          "Share of the GPU's peak; on a CPU, of a plain matrix product of the layer's size.",
          y_format=".0%", zero=True, journal="timing.jsonl"),
    Curve("data_wait", "Waiting for data", "Share of time the training loop waits for its loader.",
          y_format=".1%", zero=True, journal="timing.jsonl"),
)  # fmt: skip


def training_section(collected: Collected) -> Section | None:
    """Curves of every pretraining, over one another where there are several."""
    trained = collected.of("pretrain")
    if not trained:
        return None
    journals = {
        made.reference: {name: made.lines(name) for name in ("metrics.jsonl", "timing.jsonl")}
        for made in trained
    }
    restarts = {made.reference: _restarts(made) for made in trained}
    blocks: list[Block] = []
    for made in trained:
        if len(trained) > 1:
            blocks.append(Heading(made.title))
        metrics, timing = journals[made.reference].values()
        blocks.append(Facts(_facts(made, metrics, timing, restarts[made.reference])))
    blocks += _chance(collected)
    if any(restarts.values()):
        blocks.append(Note("Dotted rules mark restarts: a launch that went on from a checkpoint."))
    figures = [_figure(curve, trained, journals, restarts) for curve in CURVES]
    blocks.append(Figures([figure for figure in figures if figure]))
    blocks += _dropped(trained, journals)
    return Section("training", "Pretraining", blocks)


def _figure(
    curve: Curve,
    trained: Sequence[Made],
    journals: dict[str, dict[str, list[dict[str, Any]]]],
    restarts: dict[str, list[float]],
) -> Figure | None:
    series = []
    for number, made in enumerate(trained):
        alone = len(trained) == 1
        lines = journals[made.reference][curve.journal]
        training, held_out = points(lines, curve.key), points(lines, curve.held_out)
        if training:
            series.append(
                charts.Series("training" if alone else made.title, training, False, number)
            )
        if held_out:
            name = "held out" if alone else made.title
            series.append(charts.Series(name, held_out, not alone, 1 if alone else number))
    if not series:
        return None
    marks = sorted({step for made in trained for step in restarts[made.reference]})
    caption = curve.caption
    if len(trained) > 1 and any(line.dashed for line in series):
        caption += " Dashed: on held-out rows."
    name = curve.key.replace("_", "-")
    svg = charts.lines(
        name, curve.title, series, y_format=curve.y_format, zero=curve.zero, marks=marks
    )
    return Figure(name, curve.title, caption, svg)


def _chance(collected: Collected) -> list[Block]:
    """What pair accuracy is to be measured against: labels are not always balanced."""
    said = []
    for made in collected.of("examples"):
        split = made.json("statistics.json")["heldout"]
        wrong = split["other"] + split["forced"]
        if split["next"] + wrong:
            said.append(share(max(split["next"], wrong), split["next"] + wrong))
    if not said:
        return []
    shares = " and ".join(dict.fromkeys(said))
    return [
        Note(f"Telling every held-out pair the more frequent label would be right for {shares}.")
    ]


def _restarts(made: Made) -> list[float]:
    """Steps at which a launch went on; the first launch only began."""
    return [line["step"] for line in made.lines("launches.jsonl")[1:]]


def _facts(
    made: Made,
    metrics: Sequence[dict[str, Any]],
    timing: Sequence[dict[str, Any]],
    restarts: Sequence[float],
) -> list[Fact]:
    facts = []
    steps = points(metrics, "loss")
    if steps:
        facts.append(Fact("steps", count(steps[-1][0])))
    tokens = points(metrics, "tokens")
    if tokens:
        facts.append(Fact("tokens seen", short(tokens[-1][1])))
    for key, name in (("mlm_loss", "masked-word loss"), ("mlm_accuracy", "masked-word accuracy"),
                      ("pair_accuracy", "pair accuracy"),
                      ("forward_perplexity", "forward perplexity"),
                      ("backward_perplexity", "backward perplexity")):  # fmt: skip
        facts += _last(metrics, key, name)
    speed = [(line["tokens_per_second"], line.get("seconds", 1.0)) for line in timing
             if line.get("tokens_per_second") is not None]  # fmt: skip
    if speed:
        seconds = sum(weight for _, weight in speed)
        mean = sum(value * weight for value, weight in speed) / seconds
        facts.append(Fact("mean speed", f"{short(mean)} tokens/s"))
        facts.append(Fact("time training", duration(seconds), "over all launches"
                          if restarts else ""))  # fmt: skip
    else:
        facts.append(Fact("time", duration(made.facts["seconds"])))
    if restarts:
        facts.append(Fact("restarts", count(len(restarts))))
    return facts


def _last(metrics: Sequence[dict[str, Any]], key: str, name: str) -> list[Fact]:
    """The last value on held-out rows, or else in training."""
    shown = percent if key.endswith("accuracy") else lambda value: f"{value:.3f}"
    unit = "\u202f%" if key.endswith("accuracy") else ""
    for source, where in (
        (f"heldout_{key}", "held out, at the end"),
        (key, "training, at the end"),
    ):
        values = points(metrics, source)
        if values:
            return [Fact(name, f"{shown(values[-1][1])}{unit}", where)]
    return []


def _dropped(
    trained: Sequence[Made], journals: dict[str, dict[str, list[dict[str, Any]]]]
) -> list[Block]:
    """Steps that changed no weight, and why."""
    rows = [
        [made.title, count(line["step"]), str(line["dropped"])]
        for made in trained
        for line in journals[made.reference]["metrics.jsonl"]
        if "dropped" in line
    ]
    columns = (Column("pretraining"), Column("step", True), Column("reason"))
    return [Table("Steps that were dropped", columns, rows)] if rows else []
