"""The board of a store that holds a bit of everything."""

import json
from datetime import datetime
from pathlib import Path

import pytest

from pipeline.board.overview import run_results, run_rows, trainings
from pipeline.board.submission_graph import boxes, draw_graph
from pipeline.cluster.frozen import Submission, SubmittedJob
from pipeline.cluster.status import JobRow
from pipeline.commands import board as command
from pipeline.commands.board import write_board
from pipeline.commands.sweep_points import Point, write_point
from pipeline.stages import STAGES
from pipeline.store.lease import lease
from pipeline.store.outputs import LEASE, Store
from pipeline.store.runs import Entry, Runs
from tests.pipeline.reported import SampleRun

HOSTILE = "<script>alert(1)</script>"
REQUEST = {"config": {"trainer": {"max_steps": 1000}}, "upstream": {}, "files_read": {}}


def row(name: str, job: str, state: str, after: list[str], reason: str = "") -> JobRow:
    submitted = SubmittedJob(name, job, "shard", "", f"shard/{job}", after)
    return JobRow(submitted, state, reason, "", "", "", None)


JOBS = [
    row("01-shard", "7", "done", []),
    row("02-tokenizer", "8", "running", ["7"]),
    row("03-finetune", "9_0", "done", ["8", "5"]),
    row("03-finetune", "9_1", "failed", ["8", "5"], HOSTILE),
]


def write_store(root: Path) -> Store:
    """A store with a run that trains, a finished one, a sweep and a submission."""
    store = Store(root)
    training = store.output("pretrain", "a" * 16)
    training.begin(REQUEST)
    lines = [
        {"step": step, "loss": 9 - step / 20, "lr": 1e-3, "gradient_norm": 1.0}
        | ({"heldout_loss": 9.0} if step % 50 == 0 else {})
        for step in range(1, 101)
    ]
    (training.path / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    timing = {"step": 100, "tokens_per_second": 12_345.6, "seconds_left": 3700.0}
    (training.path / "timing.jsonl").write_text(json.dumps(timing) + "\n")
    page = store.output("report", "b" * 16)
    page.begin(REQUEST)
    (page.path / "index.html").write_text("a page")
    page.finish({**REQUEST, "stage": "report", "format": 3}, {}, {})
    Runs(store).record("now", [Entry("pretrain", training.fingerprint, "")], replace=True)
    Runs(store).record("finished", [Entry("report", page.fingerprint, "")], replace=True)
    for number, value in enumerate((0.5, 0.25)):
        settings = [f"finetune.lr={number}", HOSTILE]
        point = Point(number, settings, f"finetune/{number}", value)
        write_point(root / "sweeps" / "2026-01-01" / str(number), point)
    submission = Submission(root / "submissions" / "one")
    submission.create()
    submission.write_jobs([each.job for each in JOBS])
    return store


def html_of(store: Store, monkeypatch: pytest.MonkeyPatch, refresh: int = 10) -> str:
    """The page while a process trains and SLURM answers."""
    monkeypatch.setattr(command.slurm, "answers", lambda: True)
    monkeypatch.setattr(command.slurm, "queue", dict)
    monkeypatch.setattr(command, "look", lambda *given: JOBS)
    training = store.output("pretrain", "a" * 16).path
    with lease(training / LEASE, lambda: False, print):
        return write_board(store, refresh).read_text()


def test_runs_show_state_and_the_way_to_their_report(tmp_path: Path) -> None:
    store = write_store(tmp_path)
    training = store.output("pretrain", "a" * 16).path
    with lease(training / LEASE, lambda: False, print):
        rows = run_rows(store, STAGES)
        assert [(each.name, each.state) for each in rows] == [
            ("now", "pretrain runs, started"), ("finished", "done"),
        ]  # fmt: skip
        (found,) = trainings(store, STAGES)
        assert found.run == "now" and found.last("seconds_left") == 3700
        assert found.points("heldout_loss") == [(50, 9.0), (100, 9.0)]
    assert rows[1].report == f"report/{'b' * 16}/index.html"
    assert (tmp_path / rows[1].report).exists()
    assert list(trainings(store, STAGES)) == []  # nobody works on it any more


def test_the_page_has_all_parts_and_loads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    html = html_of(write_store(tmp_path), monkeypatch)
    for part in ("Training now", "Runs", "Sweeps", "Submissions"):
        assert f"<h2><bdi>{part}</bdi></h2>" in html
    assert html.count("<figure>") == 4  # three curves and a graph
    assert f'<a href="report/{"b" * 16}/index.html">' in html
    assert '<meta http-equiv="refresh" content="10">' in html
    assert HOSTILE not in html and html.count("<script>") == 1
    assert "default-src 'none'; script-src 'sha256-" in html
    assert "http://" not in html.replace("http://www.w3.org/2000/svg", "").replace(
        "http://www.w3.org/1999/xlink", ""
    )
    assert "refresh" not in html_of(Store(tmp_path), monkeypatch, refresh=0)


def test_an_empty_store_says_what_to_do(tmp_path: Path) -> None:
    assert "try: sesame run experiment=demo" in write_board(Store(tmp_path), 0).read_text()


def test_tasks_of_an_array_share_a_line(tmp_path: Path) -> None:
    found = boxes(JOBS)
    assert [box.name for box in found] == ["01-shard", "02-tokenizer", "03-finetune"]
    assert found[2].note == "failed, 1 of 2 done"
    svg = draw_graph("graph", "one", JOBS)
    assert svg.count("mark-line") == 2  # job 5 is of another submission
    assert svg.count("mark-symbol") == 3


def test_the_page_tells_when_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: object = None) -> "Clock":
            return cls(2026, 11, 18, 9, 0, 1)

    monkeypatch.setattr(command, "datetime", Clock)
    assert "as of 2026-11-18 09:00:01" in write_board(Store(tmp_path), 0).read_text()


def test_a_single_seed_has_no_deviation(tmp_path: Path) -> None:
    """`± 0.0` would say that seeds agree."""
    run = SampleRun(tmp_path)
    alone = [run.write_finetuning("polarity", "pretrain", 2)]
    assert run_results(alone) == "polarity pretrain 72.0"
    seeds = [*alone, run.write_finetuning("polarity", "pretrain", 3)]
    assert run_results(seeds) == "polarity pretrain 72.2 ± 0.3"
