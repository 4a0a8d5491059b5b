import json
from dataclasses import asdict
from pathlib import Path

import pytest
from rich.console import Console

from data_prep.work_units import ArraySlice
from pipeline.cluster import slurm
from pipeline.cluster.frozen import Submission, SubmittedJob
from pipeline.cluster.status import as_table, look
from pipeline.stages import STAGES
from pipeline.store.outputs import Store
from pipeline.workflow.execute import PIECES


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.fixture
def submission(store: Store) -> Submission:
    made = Submission(store.root / "submissions" / "one")
    made.create()
    job = ("05-pretrain", "7", "pretrain", "", "pretrain/abcd", [])
    made.write_jobs(
        [SubmittedJob(*job), SubmittedJob("01-shard-pieces", "8", "shard", "", "shard/abcd", [], 2)]
    )
    return made


def play(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr(slurm, "call", lambda *command: "".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize(
    ("lines", "state", "reason"),
    [
        (["7|N/A|RUNNING|None|alpha|1:00"], "running", ""),
        (["7|N/A|PENDING|Priority||0:00"], "waiting", "Priority"),
        (["7|N/A|CANCELLED|None||0:00"], "cancelled", ""),
        (["7|N/A|PENDING|DependencyNeverSatisfied||0:00"], "cancelled", slurm.NEVER),
        (["7|N/A|FAILED|NonZeroExitCode|alpha|0:10"], "failed", "sesame job: it broke"),
        (["7|N/A|TIMEOUT|TimeLimit|alpha|0:10"], "failed", "sesame job: it broke"),
        ([], "ended", "sesame job: it broke"),
    ],
)
def test_the_state_of_a_job(
    monkeypatch: pytest.MonkeyPatch, store: Store, submission: Submission,
    lines: list[str], state: str, reason: str,
) -> None:  # fmt: skip
    (submission.logs / "05-pretrain-7.log").write_text("sesame job: it broke\nsrun: aborted\n")
    play(monkeypatch, *lines)
    line = look(submission, store, STAGES)[0]
    assert (line.state, line.reason) == (state, reason)
    assert line.is_over == (state not in ("running", "waiting"))


def test_a_job_without_a_log_was_not_seen_by_its_node(
    monkeypatch: pytest.MonkeyPatch, store: Store, submission: Submission
) -> None:
    play(monkeypatch, "7|N/A|FAILED|RaisedSignal:53(Real-time_signal_19)|alpha|0:00")
    assert "put the store on a shared disk" in look(submission, store, STAGES)[0].reason


def test_progress_and_speed_come_from_the_run(
    monkeypatch: pytest.MonkeyPatch, store: Store, submission: Submission
) -> None:
    output = store.output("pretrain", "abcd")
    output.begin({"config": {"trainer": {"max_steps": 1000}}})
    (output.path / "checkpoints" / "00000400").mkdir(parents=True)
    timing = {"step": 412, "tokens_per_second": 12345.6}
    (output.path / "timing.jsonl").write_text(json.dumps(timing) + '\n{"step": 4')
    play(monkeypatch, "7|N/A|RUNNING|None|alpha|1:00")
    progress = look(submission, store, STAGES)[0].progress
    assert progress == "step 400 of 1,000, now at 412, 12,346 tokens/s"


def test_an_array_is_done_when_its_shares_are_though_slurm_forgot_it(
    monkeypatch: pytest.MonkeyPatch, store: Store, submission: Submission
) -> None:
    play(monkeypatch)
    pieces = store.output("shard", "abcd").path / PIECES
    pieces.mkdir(parents=True)
    for number in range(2):
        assert look(submission, store, STAGES)[1].state == "ended"
        share = ArraySlice(number, 2)
        (pieces / f".share-{share.number}-of-{share.count}").touch()
    assert look(submission, store, STAGES)[1].state == "done"


def test_brackets_in_labels_and_reasons_are_shown_as_they_are(
    monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    submission = Submission(store.root / "submissions" / "two")
    submission.create()
    label = "encoder=[glove,/models/mine]"
    submission.write_jobs(
        [SubmittedJob("09-finetune", "7", "finetune", label, "finetune/abcd", [])]
    )
    (submission.logs / "09-finetune-7.log").write_text("sesame job: [/data/a] is gone\n")
    play(monkeypatch)
    console = Console(width=300, record=True)
    console.print(as_table(submission, look(submission, store, STAGES)))
    assert f"sesame job: [/data/a] is gone; {label}" in console.export_text()


def test_a_successor_stands_for_the_job_it_took_over_from(submission: Submission) -> None:
    before = submission.jobs()
    submission.add_successor("7", "9")
    submission.add_successor("9", "11")
    assert submission.jobs() == [SubmittedJob(**asdict(before[0]) | {"id": "11"}), before[1]]
