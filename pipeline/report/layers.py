"""The section on layers: the score of every layer choice, by task and encoder."""

from collections.abc import Sequence

from pipeline.pages import charts
from pipeline.pages.blocks import Block, Column, Figure, Figures, Note, Section, Table
from pipeline.pages.wording import distinct, named, plain
from pipeline.report.collect import Collected, FinishedOutput
from pipeline.report.published import published_layers
from pipeline.report.tasks import INTERVALS, interval, mean_and_deviation, name_metric
from pipeline.tasks.config import LayersConfig, TaskConfig
from pipeline.tasks.summary import Score

EXPLANATION = (
    "The encoder is frozen. A two-layer BiLSTM reads one choice of its hidden states per row. "
    "Scores are means over seeds ± the sample standard deviation. The epoch of every head was "
    "chosen on dev."
)
PUBLISHED = (
    "The published scores are those of BERT base on CoNLL-2003's dev set (Devlin et al. 2019, "
    "table 7): compare them with the dev columns. The paper's rows “Weighted Sum” stand beside "
    "“sum last 4” and “sum all”, which add the layers without weights."
)


def layers_section(collected: Collected) -> Section | None:
    """Return one table per task, with one column and one figure per encoder."""
    tables: dict[tuple[str, str], list[FinishedOutput]] = {}
    for made in collected.of("layers"):
        tables.setdefault((made.counts["task"], made.counts["metric"]), []).append(made)
    if not tables:
        return None
    blocks: list[Block] = [Note(EXPLANATION)]
    figures: list[Figure] = []
    for (task, metric), group in tables.items():
        title = f"{task}: {name_metric(metric)}"
        names = _names(group)
        blocks += [_table(title, group, names), Note(_width(group))]
        blocks += [Note(PUBLISHED)] if published_layers(task, metric) else []
        for made, name in zip(group, names, strict=True):
            figures.append(_figure(len(figures) + 1, f"{title}, {name}", made))
    return Section("layers", "Layers", [*blocks, Figures(figures)])


def _width(group: Sequence[FinishedOutput]) -> str:
    widths = distinct(made.counts["width"] for made in group)
    return f"Width of the BiLSTM in each direction: {widths}; the paper's: {LayersConfig().width}."


def _names(group: Sequence[FinishedOutput]) -> list[str]:
    """Return a distinct name per encoder: run and label, else the output."""
    names = [named(made.run, made.counts["encoder"]) for made in group]
    return [
        name if names.count(name) == 1 else named(name, made.manifest["fingerprint"][:8])
        for name, made in zip(names, group, strict=True)
    ]


def _table(title: str, group: Sequence[FinishedOutput], names: Sequence[str]) -> Table:
    """Return development scores, published ones, and the scores of other splits, by encoder."""
    printed = published_layers(group[0].counts["task"], group[0].counts["metric"])
    dev = [_scores(made, "dev") for made in group]
    columns = [Column("layers"), *(Column(named(name, "dev"), True) for name in names)]
    columns += [Column("published dev", True)] if printed else []
    others = []
    for made, name in zip(group, names, strict=True):
        split = _scored_split(made)
        if split != "dev":
            columns.append(Column(named(name, split), True))
            others.append(_scores(made, "test"))
    choices = list(dict.fromkeys(choice for scores in dev for choice in scores))

    def cells(choice: str, every: Sequence[dict[str, Score]]) -> list[str]:
        return [mean_and_deviation(own[choice]) if choice in own else "–" for own in every]

    rows = []
    for choice in choices:
        beside = [f"{printed[choice]:.1f}" if choice in printed else "–"] if printed else []
        rows.append([plain(choice), *cells(choice, dev), *beside, *cells(choice, others)])
    return Table(title, columns, rows)


def _scored_split(made: FinishedOutput) -> str:
    """Return the split of the test scores; outputs of format 4 say it by their task only."""
    if "split" in made.counts:
        return str(made.counts["split"])
    task = made.config["task"]
    files = {key: task.get(key) for key in ("test", "dev", "test_documents")}
    return TaskConfig(**{key: value for key, value in files.items() if value}).scored_split


def _scores(made: FinishedOutput, split: str) -> dict[str, Score]:
    found = made.json("layers.json")  # ordered by layer, unlike the manifest's keys
    return {
        choice: Score(found["task"], found["metric"], found["encoder"], tuple(scores[split]))
        for choice, scores in found["choices"].items()
    }


def _figure(number: int, title: str, made: FinishedOutput) -> Figure:
    items = [interval(plain(choice), score) for choice, score in _scores(made, "dev").items()]
    name = f"layers-{number}"
    return Figure(name, title, f"On dev. {INTERVALS}", charts.intervals(name, title, items))
