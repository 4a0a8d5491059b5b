"""The section inside the fine-tunings: curves, chosen weights, types, calibration, errors.

Tables by encoder take all seeds. Where only one fine-tuning can be shown, it is the one with the
best development score (`chosen`). Names of entity types and sample errors need share.text.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from pipeline.pages import charts
from pipeline.pages.blocks import (
    Block,
    Column,
    Examples,
    Figure,
    Figures,
    Heading,
    Note,
    Section,
    Table,
)
from pipeline.pages.wording import count, distinct, named, percent
from pipeline.report.calibration import calibration_blocks
from pipeline.report.chosen import chosen_finetunings
from pipeline.report.collect import Collected, FinishedOutput
from pipeline.report.errors import sample_errors
from pipeline.report.predictions import judged_predictions
from pipeline.report.tasks import RANDOM_COLOUR, encoder_name, name_metric, with_most_labels
from pipeline.tasks.summary import Score

CURVES = "One line per seed. One evaluation per epoch, unless finetune.eval_every is set."
ANSWERABLE = {"": "all questions", "_answerable": "with an answer", "_unanswerable": "without one"}


def inside_section(
    scores: Sequence[Score], collected: Collected, share_text: bool
) -> Section | None:
    """Return, per task, how the fine-tunings went and where the best one errs."""
    chosen = chosen_finetunings(collected)
    by_task: dict[str, list[Score]] = {}
    for score in with_most_labels(scores):
        if all("dev_scores" in found for found in score.found):  # a suite has none
            by_task.setdefault(score.task, []).append(score)
    blocks: list[Block] = []
    for number, (task, group) in enumerate(by_task.items(), 1):
        blocks += [Heading(task), *_training(number, task, group), *_mixes(task, group)]
        blocks += _answerable(task, group)
        if task in chosen:
            blocks += _details_of_best(number, task, chosen[task], share_text)
    return Section("inside", "Inside the fine-tunings", blocks) if blocks else None


def _training(number: int, task: str, scores: Sequence[Score]) -> list[Block]:
    """Return chosen evaluations, cut inputs and repairs by encoder, and the development curves."""
    trained = [score for score in scores if score.found[0]["steps"]]
    if not trained:
        return []
    columns = (
        Column("encoder"), Column("seeds"), Column("chosen evaluation"), Column("evaluations"),
        Column("inputs cut"), Column("repairs of the files"),
    )  # fmt: skip
    rows = [
        [
            encoder_name(score),
            _listed(score.seeds),
            _listed([found["best_epoch"] for found in score.found]),
            distinct(len(found["dev_scores"]) for found in score.found),
            distinct(count(found["cut_inputs"]) for found in score.found),
            distinct(_repairs(found["repairs"]) for found in score.found),
        ]
        for score in trained
    ]
    blocks: list[Block] = [Table(f"{task}: training", columns, rows)]
    curves = [
        charts.Series(
            encoder_name(score),
            [(number, 100 * value) for number, value in enumerate(found["dev_scores"], 1)],
            colour=RANDOM_COLOUR if score.is_random else place,
        )
        for place, score in enumerate(trained)
        for found in score.found
    ]
    if any(len(curve.points) > 1 for curve in curves):
        name, title = (
            f"dev-{number}",
            f"{task}: {name_metric(scores[0].metric)} on the development set",
        )
        svg = charts.lines(name, title, curves, x_title="evaluation", legend=True, width=1.0)
        blocks.append(Figures([Figure(name, title, CURVES, svg)]))
    return blocks


def _listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))


def _repairs(repairs: dict[str, int]) -> str:
    return ", ".join(f"{kind} {count(number)}" for kind, number in sorted(repairs.items())) or "0"


def _mixes(task: str, scores: Sequence[Score]) -> list[Block]:
    """Return the learned weights of layers, as means over seeds."""
    mixed = [score for score in scores if all(found.get("mix") for found in score.found)]
    if not mixed:
        return []
    columns = (Column("layer"), *(Column(encoder_name(score), True) for score in mixed))
    means = [_mean_mix([found["mix"] for found in score.found]) for score in mixed]
    names = dict.fromkeys(name for mean in means for name in mean)
    rows = [
        [name, *(f"{mean[name]:.3f}" if name in mean else "–" for mean in means)] for name in names
    ]
    return [Table(f"{task}: learned mix of layers", columns, rows)]


def _mean_mix(mixes: Sequence[dict[str, Any]]) -> dict[str, float]:
    weights = zip(*(mix["weights"] for mix in mixes), strict=True)
    names = ("embeddings", *(str(n) for n in range(1, len(mixes[0]["weights"]))))
    by_layer = {name: fmean(values) for name, values in zip(names, weights, strict=True)}
    return {"γ": fmean(mix["gamma"] for mix in mixes)} | by_layer


def _answerable(task: str, scores: Sequence[Score]) -> list[Block]:
    """Return exact match and F1 over questions with and without an answer, as in SQuAD 2.0."""
    rows = []
    for score in scores:
        means = {score.metric: score.mean} | dict(score.others)
        if "f1_unanswerable" not in means:
            continue
        rows += [
            [named(encoder_name(score), part), percent(means[f"exact_match{suffix}"]),
             percent(means[f"f1{suffix}"])]
            for suffix, part in ANSWERABLE.items()
        ]  # fmt: skip
    columns = (Column("questions"), Column("exact match", True), Column("F1", True))
    return [Table(f"{task}: questions with and without an answer", columns, rows)] if rows else []


def _details_of_best(number: int, task: str, made: FinishedOutput, share_text: bool) -> list[Block]:
    """Return types, calibration and errors of one fine-tuning."""
    kind, counts = made.counts["kind"], made.counts
    predictions = judged_predictions(made)
    blocks = _by_type(task, made, share_text)
    blocks += calibration_blocks(number, task, kind, predictions)
    errors = sample_errors(kind, predictions) if share_text else []
    if errors:
        blocks += [Note(f"{task}: errors, the most confident first."), Examples(errors, False)]
    if not blocks:
        return []
    which = named(made.run, counts["encoder"], f"seed {counts['seed']}")
    said = f"From here on, one fine-tuning: the best of {task} by development score, {which}."
    return [Note(said), *blocks]


def _by_type(task: str, made: FinishedOutput, share_text: bool) -> list[Block]:
    """Return conlleval's table; types are named only with share.text."""
    types: dict[str, dict[str, float]] = made.json("scores.json").get("by_type", {})
    columns = (
        Column("type"), Column("F1", True), Column("precision", True), Column("recall", True),
        Column("in gold", True), Column("predicted", True),
    )  # fmt: skip
    rows = [
        [
            kind if share_text else f"type {number}",
            *(percent(own[f"entity_{name}"]) for name in ("f1", "precision", "recall")),
            count(own["gold"]),
            count(own["predicted"]),
        ]
        for number, (kind, own) in enumerate(types.items(), 1)
    ]
    return [Table(f"{task}: by type", columns, rows)] if rows else []
