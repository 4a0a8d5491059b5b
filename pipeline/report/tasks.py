"""The section on downstream tasks: scores over seeds, and pretrained beside random weights."""

from collections.abc import Sequence

from pipeline.report import charts
from pipeline.report.blocks import (
    Block,
    Column,
    Fact,
    Facts,
    Figure,
    Figures,
    Note,
    Section,
    Table,
)
from pipeline.report.collect import Collected
from pipeline.report.wording import count, percent, plain
from pipeline.summary import Gain, Score, gains, summarise

METRICS = {
    "accuracy": "accuracy",
    "f1": "F1",
    "matthews": "Matthews correlation",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "entity_f1": "entity F1",
    "exact_match": "exact match",
    "average": "average of tasks",
}
EXPLANATION = (
    "Means over seeds with the sample deviation, in points of a hundred, on the test examples. "
    "Labels are the training examples each fine-tuning saw. A difference is clear where mean ± "
    "deviation of the two encoders do not overlap."
)


def read_scores(collected: Collected) -> list[Score]:
    """All fine-tunings, summarised over their seeds."""
    tuned = collected.every("finetune")
    return summarise([made.path / "scores.json" for made in tuned], [made.run for made in tuned])


def tasks_section(scores: Sequence[Score]) -> Section | None:
    """A table and a figure for each task."""
    if not scores:
        return None
    beside = gains(scores)
    blocks: list[Block] = [Note(EXPLANATION)]
    by_task: dict[tuple[str, str], list[Score]] = {}
    for score in scores:
        by_task.setdefault((score.task, score.metric), []).append(score)
    figures = []
    for number, ((task, metric), group) in enumerate(by_task.items(), 1):
        blocks.append(_table(task, metric, group, beside))
        figures.append(_figure(number, task, metric, group))
    return Section("tasks", "Downstream tasks", [*blocks, Figures(figures)])


def headline(scores: Sequence[Score]) -> Facts | None:
    """The best trained encoder of each task, for the head of the page."""
    beside = gains(scores)
    facts = []
    for task in dict.fromkeys(score.task for score in scores):
        trained = [score for score in scores if score.task == task and not score.is_random]
        if not trained:
            continue
        best = max(trained, key=lambda score: score.mean)
        gain = beside.get(best)
        note = name_metric(best.metric)
        if gain:
            note = f"{note}, {difference(gain)} over random weights: {verdict(gain)}"
        facts.append(Fact(task, mean_and_deviation(best), note))
    return Facts(facts) if facts else None


def name_metric(metric: str) -> str:
    """A metric as a reader knows it."""
    return METRICS.get(metric, plain(metric))


def mean_and_deviation(score: Score) -> str:
    """`71.2 ± 0.5`; the mean alone for a single seed."""
    if len(score.values) < 2:
        return percent(score.mean)
    return f"{percent(score.mean)} ± {percent(score.deviation)}"


def difference(gain: Gain) -> str:
    """Points gained, with their sign."""
    return f"{100 * gain.difference:+.1f}".replace("-", "−")


def verdict(gain: Gain) -> str:
    """Whether a difference means something."""
    if gain.is_clear is None:
        return "one seed, no deviation"
    if not gain.is_clear:
        return "within the deviations"
    return "clearly ahead" if gain.difference > 0 else "clearly behind"


def _table(task: str, metric: str, scores: Sequence[Score], beside: dict[Score, Gain]) -> Table:
    columns = [
        Column("encoder"), Column(name_metric(metric), True), Column("over random weights", True),
        Column(""), Column("median", True), Column("seeds", True), Column("labels", True),
        Column("test examples", True),
    ]  # fmt: skip
    rows = []
    for score in scores:
        gain = beside.get(score)
        rows.append(
            [
                _encoder(score),
                mean_and_deviation(score),
                difference(gain) if gain else "",
                verdict(gain) if gain else "",
                percent(score.median),
                count(len(score.values)),
                count(score.train_examples),
                count(score.test_examples),
            ]
        )
    return Table(f"{task}: {name_metric(metric)}", columns, rows)


def _figure(number: int, task: str, metric: str, scores: Sequence[Score]) -> Figure:
    intervals = [
        charts.Interval(
            _encoder(score), score.values, score.mean, score.deviation, 4 if score.is_random else 0
        )
        for score in scores
    ]
    title = f"{task}: {name_metric(metric)}"
    name = f"task-{number}"
    caption = "Disc and bar: mean and deviation over seeds. Rings: single seeds."
    return Figure(name, title, caption, charts.intervals(name, title, intervals))


def _encoder(score: Score) -> str:
    """An encoder with what tells it apart."""
    name = "random weights" if score.is_random else score.encoder
    return " · ".join(part for part in (score.run, name, score.variant) if part)
