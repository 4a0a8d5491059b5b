"""The section on downstream tasks: scores over seeds, against random weights and papers."""

from collections.abc import Sequence

from pipeline.pages import charts
from pipeline.pages.blocks import (
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
from pipeline.pages.wording import count, named, percent, plain
from pipeline.report.collect import Collected
from pipeline.report.published import published
from pipeline.tasks.config import AVERAGE, RANDOM
from pipeline.tasks.significance import LEVEL, SEEDS
from pipeline.tasks.summary import CHOSEN_ON_DEV, LABELS, Gain, Score, gains, summarise

METRICS = {
    "accuracy": "accuracy",
    "f1": "F1",
    "matthews": "Matthews correlation",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "entity_f1": "entity F1",
    "exact_match": "exact match",
    "micro_f1": "micro F1",
    "macro_f1": "macro F1",
    "subset_accuracy": "all labels right",
    "average": "average of tasks",
}
EXPLANATION = (
    "Scores are percentages: the mean over seeds ± the sample standard deviation. The column "
    "“labels” is the number of training examples. “Clearly ahead” and “clearly behind” mean that a "
    f"t-test over at least {SEEDS} seeds each gives p < {LEVEL:g}; otherwise the page says “cannot "
    "tell”. The test assumes that seeds are independent."
)
CHOICE = (
    "The epoch of every fine-tuning, and the score at the top of the page, are chosen by the "
    "development score, never by the test score."
)
ON_DEV = (
    "Scores on dev are too high: the task has no test file, so the epoch or the threshold was "
    "chosen on the set that is scored. If a task has several encoders or settings, the score at "
    "the top was chosen on this set too."
)
BEST_ON_DEV = "it was chosen on the set that is scored, so this score is too high"
CEILING = (
    "Published models were pretrained on billions of words and fine-tuned on all labels, so their "
    "scores are an upper limit. Compare exact figures only on the same split."
)
INTERVALS = "Disc and bar: mean and deviation over seeds. Rings: single seeds."
RANDOM_COLOUR = 4
GROUPED_PARTS = {"train": "training", "dev": "development", "test": "test"}


def read_scores(collected: Collected) -> list[Score]:
    """Return all fine-tunings, summarised over their seeds."""
    tuned = collected.every("finetune")
    files = [made.path / "scores.json" for made in tuned]
    return summarise(files, [made.run for made in tuned], LABELS)


def tasks_section(
    scores: Sequence[Score],
    confusions: dict[str, Table],
    groups: dict[str, Table],
    kept: Table | None = None,
) -> Section | None:
    """Return, per task, our scores, the published scores, a figure and further tables."""
    if not scores:
        return None
    shown = with_most_labels(scores)
    beside = gains(shown)
    by_task: dict[tuple[str, str], list[Score]] = {}
    for score in shown:
        by_task.setdefault((score.task, score.metric), []).append(score)
    blocks: list[Block] = [Note(EXPLANATION), Note(CHOICE)]
    if any(score.is_too_high for score in shown):
        blocks.append(Note(ON_DEV))
    if any(published(task) for task, _ in by_task):
        blocks.append(Note(CEILING))
    blocks += _side_by_side(by_task)
    for number, ((task, metric), group) in enumerate(by_task.items(), 1):
        blocks.append(_table(task, metric, group, beside))
        blocks += _published(task, metric, {score.split for score in group})
        blocks.append(Figures([_figure(number, task, metric, group)]))
        blocks += [tables[task] for tables in (groups, confusions) if task in tables]
        blocks += _other_scores(task, metric, group)
    blocks += [kept] if kept else []
    return Section("tasks", "Downstream tasks", blocks)


def group_tables(collected: Collected) -> dict[str, Table]:
    """Return the groups per split of tasks with task.group_field, by the task's name."""
    rows: dict[str, dict[tuple[str, ...], None]] = {}
    for made in collected.every("finetune"):
        groups = made.counts.get("groups")
        if groups:
            parts = (*GROUPED_PARTS, "examples_without")
            rows.setdefault(made.counts["task"], {})[tuple(count(groups[p]) for p in parts)] = None
    columns = (
        *(Column(name, True) for name in GROUPED_PARTS.values()),
        Column("in two of them", True),
        Column("examples without a group", True),
    )
    return {
        task: Table(f"{task}: groups", columns, [[*row[:-1], "0", row[-1]] for row in found])
        for task, found in rows.items()
    }


def with_most_labels(scores: Sequence[Score]) -> list[Score]:
    """Keep, of scores that differ only in the number of labels, the one with the most."""
    most: dict[tuple[str, ...], Score] = {}
    for score in scores:
        place = most.setdefault(learner(score), score)
        if score.train_examples > place.train_examples:
            most[learner(score)] = score
    return list(most.values())


def learner(score: Score) -> tuple[str, ...]:
    """Return the key that scores with different numbers of labels share."""
    return score.task, score.metric, score.encoder, score.variant, score.run


def headline(scores: Sequence[Score]) -> Facts | None:
    """Return one score per task for the top of the page: that of `best_by_development`."""
    scores = with_most_labels(scores)
    beside = gains(scores)
    facts = []
    for task in dict.fromkeys(score.task for score in scores):
        trained = [score for score in scores if score.task == task and not score.is_random]
        if not trained:
            continue
        best = best_by_development(trained)
        gain = beside.get(best)
        notes = [name_metric(best.metric)]
        if gain:
            notes[0] += f", {difference(gain)} over random weights: {gain.verdict}"
        if len(trained) > 1:
            rank = "first" if best.dev_mean is None else "best"
            choice = f"{encoder_name(best)}: the {rank} of {len(trained)}"
            notes.append(choice if best.dev_mean is None else f"{choice} by development score")
        if best.is_too_high:
            notes.append(CHOSEN_ON_DEV)
        elif len(trained) > 1 and best.split == "dev":
            notes.append(BEST_ON_DEV)
        facts.append(Fact(task, mean_and_deviation(best), "; ".join(notes)))
    return Facts(facts) if facts else None


def best_by_development(scores: Sequence[Score]) -> Score:
    """Return the score with the best development score. Test scores choose nothing.

    Scores without a development score (suites of earlier versions) come last.
    """
    return max(scores, key=lambda score: -1.0 if score.dev_mean is None else score.dev_mean)


def name_metric(metric: str) -> str:
    """Return a metric's usual name."""
    return METRICS.get(metric, plain(metric))


def mean_and_deviation(score: Score) -> str:
    """Format as `71.2 ± 0.5`; for a single seed only the mean."""
    if len(score.values) < 2:
        return percent(score.mean)
    return f"{percent(score.mean)} ± {percent(score.deviation)}"


def difference(gain: Gain) -> str:
    """Format the difference in points, with its sign."""
    return f"{100 * gain.difference:+.1f}".replace("-", "−")


def _side_by_side(by_task: dict[tuple[str, str], list[Score]]) -> list[Block]:
    """Return a table with one row per encoder; empty for a single task."""
    if len(by_task) < 2:
        return []
    cells: dict[str, dict[str, str]] = {}
    for (task, metric), scores in by_task.items():
        for score in scores:
            row = cells.setdefault(encoder_name(score), {})
            row[f"{task}: {name_metric(metric)}"] = mean_and_deviation(score)
    tasks = [f"{task}: {name_metric(metric)}" for task, metric in by_task]
    columns = (Column("encoder"), *(Column(task, True) for task in tasks))
    rows = [[name, *(row.get(task, "–") for task in tasks)] for name, row in cells.items()]
    return [Table("All tasks", columns, rows)]


def _table(task: str, metric: str, scores: Sequence[Score], beside: dict[Score, Gain]) -> Table:
    columns = [
        Column("encoder"), Column(name_metric(metric), True), Column("over random weights", True),
        Column(""), Column("median", True), Column("seeds", True), Column("labels", True),
        Column("scored on", True),
    ]  # fmt: skip
    rows = []
    for score in scores:
        gain = beside.get(score)
        rows.append(
            [
                encoder_name(score),
                mean_and_deviation(score),
                difference(gain) if gain else "",
                gain.verdict if gain else "",
                percent(score.median),
                count(len(score.values)),
                count(score.train_examples),
                f"{count(score.test_examples)} ({score.split})"
                if score.split
                else count(score.test_examples),
            ]
        )
    return Table(f"{task}: {name_metric(metric)}", columns, rows)


def _published(task: str, metric: str, splits: set[str]) -> list[Block]:
    """Return the published scores for a task, those on our split first."""
    figures = published(task)
    metrics = sorted({figure.metric for figure in figures}, key=lambda name: name != metric)
    rows: dict[tuple[str, str, str], dict[str, str]] = {}
    for figure in sorted(figures, key=lambda figure: figure.split not in splits):
        row = rows.setdefault((figure.model, figure.split, figure.source), {})
        row[figure.metric] = figure.printed
    columns = (
        Column("model"), *(Column(name_metric(name), True) for name in metrics), Column("on"),
        Column("source"),
    )  # fmt: skip
    cells = [
        [model, *(row.get(name, "–") for name in metrics), split, source]
        for (model, split, source), row in rows.items()
    ]
    return [Table(f"{task}: published", columns, cells)] if cells else []


def _other_scores(task: str, metric: str, scores: Sequence[Score]) -> list[Block]:
    """Return the means of all other metrics; for a suite, the scores of its tasks."""
    every = dict.fromkeys(name for score in scores for name, _ in score.others)
    names = [name for name in every if not name.endswith("answerable")]  # see `inside`
    if not names:
        return []
    columns = (Column("encoder"), *(Column(name_metric(name), True) for name in names))
    rows = []
    for score in scores:
        means = dict(score.others)
        cells = [percent(means[name]) if name in means else "–" for name in names]
        rows.append([encoder_name(score), *cells])
    return [Table(f"{task}: other scores", columns, rows, folded=metric != AVERAGE)]


def _figure(number: int, task: str, metric: str, scores: Sequence[Score]) -> Figure:
    intervals = [interval(encoder_name(score), score) for score in scores]
    title = f"{task}: {name_metric(metric)}"
    name = f"task-{number}"
    return Figure(name, title, INTERVALS, charts.intervals(name, title, intervals))


def interval(name: str, score: Score) -> charts.Interval:
    """Return a score as a line of a figure."""
    colour = RANDOM_COLOUR if score.is_random else 0
    return charts.Interval(name, score.values, score.mean, score.deviation, colour)


def encoder_name(score: Score) -> str:
    """Return an encoder's name with run and variant."""
    name = score.encoder
    if score.is_random:
        twin = name.removeprefix(RANDOM)  # of `random:mine`, or the beginning of a fingerprint
        name = "random weights" + (f" of {twin[1:]}" if twin.startswith(":") else twin)
    return named(score.run, name, score.variant)
