"""Read the state of a whole store: its runs, and the trainings that run now."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pipeline.store.journal import read_lines
from pipeline.store.lease import read_holder
from pipeline.store.outputs import LEASE, Output, Store
from pipeline.store.runs import Entry, Runs
from pipeline.tasks.summary import mean_and_deviation, summarise
from pipeline.workflow.graph import Stages

METRICS, TIMING = "metrics.jsonl", "timing.jsonl"


@dataclass(frozen=True)
class RunRow:
    """One run: how far it is, its scores, and its page."""

    name: str
    outputs: str  # done of all
    state: str
    results: str
    report: str  # address of its page, relative to the store; empty if there is none
    is_at_work: bool  # a process makes one of its outputs now


@dataclass(frozen=True)
class Training:
    """A pretraining that a process works on now."""

    run: str
    progress: str
    metrics: list[dict[str, Any]]
    timing: list[dict[str, Any]]

    def points(self, key: str) -> list[tuple[float, float]]:
        """Return (step, value) of a key of the metrics."""
        return [(line["step"], line[key]) for line in self.metrics if line.get(key) is not None]

    def last(self, key: str) -> float | None:
        """Return the last timing of a key."""
        values = [line[key] for line in self.timing if line.get(key) is not None]
        return float(values[-1]) if values else None


def run_rows(store: Store, stages: Stages) -> list[RunRow]:
    """Return all runs, those that work first."""
    runs = Runs(store)
    rows = [_run_row(store, stages, name, runs.current(name)) for name in runs.names()]
    return sorted(rows, key=lambda row: (not row.is_at_work, row.name))


def _run_row(store: Store, stages: Stages, name: str, entries: list[Entry]) -> RunRow:
    outputs = [store.output(entry.stage, entry.fingerprint) for entry in entries]
    done = [output for output in outputs if output.is_done]
    pages = [output for output in done if output.stage == "report"]
    page = f"{pages[-1].reference}/index.html" if pages else ""
    return RunRow(
        name,
        f"{len(done)} of {len(outputs)}",
        run_state(outputs, stages),
        run_results(outputs),
        page,
        any(_is_held(output) for output in outputs),
    )


def _is_held(output: Output) -> bool:
    """Return True if a process makes the output now."""
    return not output.is_done and read_holder(output.path / LEASE) is not None


def run_results(outputs: list[Output]) -> str:
    """Return the mean scores of a run's finished fine-tunings."""
    tunings = [output for output in outputs if output.stage == "finetune" and output.is_done]
    return "; ".join(
        f"{score.task} {score.encoder} {mean_and_deviation(score)}"
        for score in summarise([output.path / "scores.json" for output in tunings])
    )


def run_state(outputs: list[Output], stages: Stages) -> str:
    """Return a run's state: the output being made, else the first unfinished output."""
    unfinished = [output for output in outputs if not output.is_done]
    for output in unfinished:
        if output.has_manifest:
            return f"{output.stage} damaged; sesame verify says more"
    for output in unfinished:
        if _is_held(output):
            return f"{output.stage} runs, {stages[output.stage].how_far(output.path)}"
    for output in unfinished:
        if output.is_begun:
            return f"{output.stage} stopped, {stages[output.stage].how_far(output.path)}"
    return f"{unfinished[0].stage} not begun" if unfinished else "done"


def trainings(store: Store, stages: Stages) -> Iterator[Training]:
    """Yield the pretrainings that run now and have logged a step."""
    runs = Runs(store)
    names = {
        entry.fingerprint: name
        for name in runs.names()
        for entry in runs.current(name)
        if entry.stage == "pretrain"
    }
    for output in store.outputs("pretrain"):
        if not _is_held(output):
            continue
        metrics = list(read_lines(output.path / METRICS))
        if metrics:
            name = names.get(output.fingerprint, output.fingerprint[:8])
            progress = stages["pretrain"].how_far(output.path)
            yield Training(name, progress, metrics, list(read_lines(output.path / TIMING)))
