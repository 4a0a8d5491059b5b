"""Render the page of the whole store: `<store>/board.html`.

The page loads nothing from the network. Its own script sorts tables; without it the page can be
read all the same. The browser loads the file again every few seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pipeline.board.overview import RunRow, Training
from pipeline.board.submission_graph import draw_graph
from pipeline.cluster.status import JobRow
from pipeline.pages import charts
from pipeline.pages.blocks import (
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
from pipeline.pages.page import Page, render
from pipeline.pages.wording import duration, short


@dataclass(frozen=True)
class SweepRows:
    """A sweep: its points with settings and objective."""

    id: str
    objective: str  # name of the objective; empty if there is none
    points: Sequence[tuple[int, str, str]]  # number, settings, value or state


@dataclass(frozen=True)
class SubmissionRows:
    """A submission and its jobs."""

    id: str
    jobs: Sequence[JobRow]


def board(
    store: str,
    runs: Sequence[RunRow],
    training: Sequence[Training],
    sweeps: Sequence[SweepRows],
    submissions: Sequence[SubmissionRows],
    now: datetime,
    refresh: int,
) -> Page:
    """Render the page. `refresh`: seconds after which the browser loads it again; 0 = never."""
    working = sum(run.is_at_work for run in runs)
    facts = Facts(
        [
            Fact("runs", str(len(runs)), f"{working} at work" if working else ""),
            Fact("training now", str(len(training))),
            Fact("sweeps", str(len(sweeps))),
            Fact("submissions", str(len(submissions))),
        ]
    )
    sections = [
        Section("now", "Training now", list(_now(training))),
        Section("runs", "Runs", [_runs(runs)]),
        Section("sweeps", "Sweeps", [_sweep(sweep) for sweep in sweeps]),
        Section("submissions", "Submissions", [b for s in submissions for b in _submission(s)]),
    ]
    lead = f"{store}, as of {now:%Y-%m-%d %H:%M:%S}"
    title = f"Board of {Path(store).name}"
    shown = [section for section in sections if section.blocks]
    return render("board", title, lead, facts, shown, refresh=refresh, sorts=True)


def _now(training: Sequence[Training]) -> list[Block]:
    blocks: list[Block] = []
    for number, one in enumerate(training):
        facts = [Fact("saved", one.progress)]
        for key, name, wording in (
            ("tokens_per_second", "tokens/s", short),
            ("seconds_left", "time left", duration),
        ):
            value = one.last(key)
            if value is not None:
                facts.append(Fact(name, wording(value)))
        blocks += [Heading(one.run), Facts(facts), Figures(_curves(number, one))]
    return blocks


def _curves(number: int, one: Training) -> list[Figure]:
    curves = (
        ("loss", "Loss", "Nats, all objectives together.", "heldout_loss", False),
        ("lr", "Learning rate", "As the schedule set it.", "", True),
        ("gradient_norm", "Gradient norm", "Before clipping.", "", True),
    )
    figures = []
    for key, title, caption, held_out, zero in curves:
        series = [
            charts.Series(name, points, colour=colour)
            for colour, (name, points) in enumerate(
                (("training", one.points(key)), ("held out", one.points(held_out)))
            )
            if points
        ]
        if series:
            name = f"now-{number}-{key.replace('_', '-')}"
            svg = charts.lines(name, title, series, zero=zero)
            figures.append(Figure(name, title, caption, svg))
    return figures


def _runs(runs: Sequence[RunRow]) -> Block:
    if not runs:
        return Note("There are no runs in this store yet; try: sesame run experiment=demo")
    columns = [Column("run"), Column("outputs done", True), Column("state"), Column("results")]
    rows = [(run.name, run.outputs, run.state, run.results or "–") for run in runs]
    links = [run.report for run in runs]
    return Table("A run's name leads to its report", columns, rows, links=links, sortable=True)


def _sweep(sweep: SweepRows) -> Table:
    columns = [Column("point", True), Column("settings"), Column(sweep.objective or "output", True)]
    rows = [(str(number), settings, value) for number, settings, value in sweep.points]
    return Table(sweep.id, columns, rows, sortable=True)


def _submission(submission: SubmissionRows) -> list[Block]:
    name = f"submission-{submission.id}"
    svg = draw_graph(name, submission.id, submission.jobs)
    reasons = [
        (row.job.title, row.state, row.progress, row.reason)
        for row in submission.jobs
        if row.reason or row.progress
    ]
    blocks: list[Block] = [Figures([Figure(name, submission.id, "Jobs and their states.", svg)])]
    if reasons:
        columns = [Column(name) for name in ("job", "state", "progress", "reason")]
        blocks.append(Table(f"Jobs of {submission.id}", columns, reasons, sortable=True))
    return blocks
