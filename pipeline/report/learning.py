"""The section on learning curves: scores over the number of labels, per encoder."""

from collections.abc import Sequence

from pipeline.pages import charts
from pipeline.pages.blocks import Block, Column, Figure, Figures, Note, Section, Table
from pipeline.pages.wording import count
from pipeline.report.tasks import (
    RANDOM_COLOUR,
    encoder_name,
    learner,
    mean_and_deviation,
    name_metric,
)
from pipeline.tasks.summary import Score

EXPLANATION = (
    "Mean over seeds ± the sample standard deviation, by the number of training examples "
    "(labels). A good encoder is ahead mainly where labels are few."
)
Learner = list[Score]  # the scores of one encoder, sorted by number of labels


def learning_section(scores: Sequence[Score]) -> Section | None:
    """Return a figure and a table per task that was trained with several numbers of labels."""
    tasks: dict[tuple[str, str], list[Learner]] = {}
    for curve in _learners(scores):
        tasks.setdefault((curve[0].task, curve[0].metric), []).append(curve)
    if not tasks:
        return None
    blocks: list[Block] = [Note(EXPLANATION)]
    for number, ((task, metric), learners) in enumerate(tasks.items(), 1):
        title = f"{task}: {name_metric(metric)}"
        blocks += [_table(title, learners), Figures([_figure(number, title, learners)])]
    return Section("learning", "Learning curves", blocks)


def _learners(scores: Sequence[Score]) -> list[Learner]:
    groups: dict[tuple[str, ...], Learner] = {}
    for score in scores:
        groups.setdefault(learner(score), []).append(score)
    return [
        sorted(group, key=lambda score: score.train_examples)
        for group in groups.values()
        if len({score.train_examples for score in group}) > 1
    ]


def _table(title: str, learners: Sequence[Learner]) -> Table:
    sizes = sorted({score.train_examples for curve in learners for score in curve})
    by_size = [{score.train_examples: score for score in curve} for curve in learners]
    columns = (
        Column("labels", True),
        *(Column(encoder_name(curve[0]), True) for curve in learners),
    )
    rows = [
        [count(size), *(mean_and_deviation(own[size]) if size in own else "–" for own in by_size)]
        for size in sizes
    ]
    return Table(title, columns, rows)


def _figure(number: int, title: str, learners: Sequence[Learner]) -> Figure:
    items = [
        charts.Band(
            encoder_name(curve[0]),
            [(score.train_examples, score.mean, score.deviation) for score in curve],
            RANDOM_COLOUR if curve[0].is_random else place,
        )
        for place, curve in enumerate(learners)
    ]
    name = f"learning-{number}"
    caption = "Line and band: mean and deviation over seeds."
    return Figure(name, title, caption, charts.bands(name, title, items, x_title="labels"))
