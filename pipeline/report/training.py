"""The section on pretraining: curves, held-out results, speed and restarts."""

from collections.abc import Sequence
from typing import Any

from pipeline.pages.blocks import (
    Block,
    Column,
    Fact,
    Facts,
    Figures,
    Heading,
    Note,
    Section,
    Table,
)
from pipeline.pages.wording import count, distinct, duration, percent, share, short
from pipeline.report.collect import Collected, points
from pipeline.report.curves import STEPS, TOKENS, Journal, draw_curves, time_scale
from pipeline.report.strata import loss_tables

GB = 1e9


def training_section(collected: Collected) -> Section | None:
    """Return the curves of every pretraining, overlaid if there are several."""
    journals = [Journal(made) for made in collected.of("pretrain")]
    if not journals:
        return None
    blocks: list[Block] = []
    for journal in journals if len(collected.runs) < 2 else ():  # else `comparison` shows them
        if len(journals) > 1:
            blocks.append(Heading(journal.made.title))
        blocks.append(Facts(pretraining_facts(journal)))
    blocks += _chance(collected)
    if any(journal.restarts for journal in journals):
        blocks.append(Note("Dotted rules mark restarts: a launch that went on from a checkpoint."))
    if len(journals) == 1:
        blocks.append(Figures(draw_curves(journals, STEPS)))
    else:
        blocks += [Heading("By tokens"), Figures(draw_curves(journals, TOKENS))]
        by_time = draw_curves(journals, time_scale(journals))
        blocks += [Heading("By time"), Figures(by_time)] if by_time else []
    for journal in journals:
        losses = journal.made.counts.get("heldout_loss", {})
        blocks += loss_tables(losses, f", {journal.made.title}" if len(journals) > 1 else "")
    blocks += _dropped(journals)
    return Section("training", "Pretraining", blocks)


def _chance(collected: Collected) -> list[Block]:
    """Return the chance level of pair accuracy, since labels are not always balanced."""
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
        Note(f"Predicting the more frequent label would be right for {shares} of held-out pairs.")
    ]


def pretraining_facts(journal: Journal) -> list[Fact]:
    """Return a pretraining's steps, held-out results, time and speed."""
    facts = []
    metrics, timing = journal.metrics, journal.timing
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
                          if journal.restarts else ""))  # fmt: skip
    else:
        facts.append(Fact("time", duration(journal.made.seconds)))
    return facts + _means(journal)


def _means(journal: Journal) -> list[Fact]:
    """Return useful tokens, peak memory, ranks and the number of restarts."""
    facts = []
    useful = [value for _, value in points(journal.timing, "useful")]
    if useful:
        facts.append(Fact("useful tokens", share(sum(useful) / len(useful)), "not padding"))
    memory = [value for _, value in points(journal.timing, "peak_memory_bytes")]
    if memory:
        facts.append(Fact("peak memory", f"{max(memory) / GB:.2f}\u202fGB", "of a rank"))
    launches = journal.made.lines("launches.jsonl")
    if launches:
        ranks = distinct(f"{line['ranks']} × {line['strategy']}" for line in launches)
        facts.append(Fact("ranks", ranks))
    if journal.restarts:
        facts.append(Fact("restarts", count(len(journal.restarts))))
    return facts


def _last(metrics: Sequence[dict[str, Any]], key: str, name: str) -> list[Fact]:
    """Return the last held-out value of a key, else the last training value."""
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


def _dropped(journals: Sequence[Journal]) -> list[Block]:
    """Return the skipped steps, which changed no weight, and their reasons."""
    rows = [
        [journal.made.title, count(line["step"]), str(line["dropped"])]
        for journal in journals
        for line in journal.metrics
        if "dropped" in line
    ]
    columns = (Column("pretraining"), Column("step", True), Column("reason"))
    return [Table("Steps that were dropped", columns, rows)] if rows else []
