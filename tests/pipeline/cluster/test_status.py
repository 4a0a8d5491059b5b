import json
from dataclasses import asdict
from pathlib import Path

import pytest
from rich.console import Console

from data_prep.passes import UNITS
from pipeline.cluster import causes, slurm
from pipeline.cluster.frozen import Submission, SubmittedJob
from pipeline.cluster.status import as_table, look
from pipeline.stages import STAGES
from pipeline.store.outputs import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.fixture
def submission(store: Store) -> Submission:
    made = Submission(store.root / "submissions" / "one")
    made.create()
    job = ("05-pretrain", "7", "pretrain", "", "pretrain/abcd", [])
    made.write_jobs(
        [
            SubmittedJob(*job),
            SubmittedJob("01-shard-clean", "8", "shard", "", "shard/abcd", [], 2, "clean"),
        ]
    )
    return made


def play(monkeypatch: pytest.MonkeyPatch, *lines: str, accounted: tuple[str, ...] = ()) -> None:
    """Let squeue say `lines` and sacct `accounted`; without the latter sacct refuses."""

    def call(*command: str) -> str:
        if command[0] == "sacct" and not accounted:
            raise slurm.Refused("sacct: Slurm accounting storage is disabled")
        said = accounted if command[0] == "sacct" else lines
        return "".join(f"{line}\n" for line in said)

    monkeypatch.setattr(slurm, "call", call)


@pytest.mark.parametrize(
    ("lines", "state", "reason"),
    [
        (["7|N/A|RUNNING|None|alpha|1:00"], "running", ""),
        (["7|N/A|PENDING|Priority||0:00"], "waiting", "Priority"),
        (["7|N/A|CANCELLED|None||0:00"], "cancelled", str(causes.CANCELLED)),
        (["7|N/A|PENDING|DependencyNeverSatisfied||0:00"], "cancelled", str(causes.NOT_STARTED)),
        (["7|N/A|FAILED|NonZeroExitCode|alpha|0:10"], "failed", "sesame job: it broke"),
        (["7|N/A|TIMEOUT|TimeLimit|alpha|0:10"], "failed", str(causes.TIME_LIMIT)),
        (["7|N/A|OUT_OF_MEMORY|OutOfMemory|alpha|0:10"], "failed", str(causes.OUT_OF_MEMORY)),
        (["7|N/A|NODE_FAIL|NodeDown|alpha|0:10"], "failed", str(causes.NODE_FAILURE)),
        (["7|N/A|PREEMPTED|None|alpha|0:10"], "failed", str(causes.PREEMPTED)),
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


@pytest.mark.parametrize(
    ("log", "state", "cause"),
    [
        ("slurmstepd: error: *** JOB 7 ON alpha CANCELLED AT 2026-11-18T07:00:00 DUE TO TIME "
         "LIMIT ***\nsesame job: interrupted: pretrain, step 40\n", "failed", causes.TIME_LIMIT),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch. Some of the step tasks "
         "have been OOM Killed.\n", "failed", causes.OUT_OF_MEMORY),
        ("slurmstepd-alpha: error: *** JOB 7 ON alpha CANCELLED AT 2026-11-18T07:00:00 ***\n",
         "cancelled", causes.CANCELLED),
        ("srun: error: Node failure on beta\n", "failed", causes.NODE_FAILURE),
    ],
)  # fmt: skip
def test_a_forgotten_job_is_told_by_its_log(
    monkeypatch: pytest.MonkeyPatch, store: Store, submission: Submission,
    log: str, state: str, cause: causes.Cause,
) -> None:  # fmt: skip
    path = submission.logs / "05-pretrain-7.log"
    path.write_text(f"{causes.STARTS}pretrain\n{log}")
    play(monkeypatch)
    line = look(submission, store, STAGES)[0]
    assert (line.state, line.reason) == (state, str(cause))
    # A later start of the same job says nothing of it.
    path.write_text(f"{path.read_text()}{causes.STARTS}pretrain\nsesame job: it broke\n")
    assert look(submission, store, STAGES)[0].reason == "sesame job: it broke"


def test_accounting_knows_what_the_queue_forgot(
    monkeypatch: pytest.MonkeyPatch, store: Store, submission: Submission
) -> None:
    """The lines are written after the documented format of `sacct`; no cluster with accounting was
    at hand."""
    lines = ("7|OUT_OF_MEMORY", "8_0|COMPLETED", "8_1|CANCELLED by 1000", "8_[2-5]|PENDING")
    play(monkeypatch, accounted=lines)
    training, pieces = look(submission, store, STAGES)
    assert (training.state, training.reason) == ("failed", str(causes.OUT_OF_MEMORY))
    assert (pieces.state, pieces.reason) == ("cancelled", str(causes.CANCELLED))
    assert [(row.numbers, row.state) for row in pieces.tasks] == [([0], "done"), ([1], "cancelled")]


def test_jobs_that_never_ran_are_explained_though_slurm_forgot_them(
    monkeypatch: pytest.MonkeyPatch, store: Store, submission: Submission
) -> None:
    first = SubmittedJob("01-shard", "7", "shard", "", "shard/abcd", [])
    second = SubmittedJob("02-tokenizer", "9", "tokenizer", "", "tokenizer/abcd", ["7"])
    submission.write_jobs([first, second])
    play(monkeypatch)
    assert look(submission, store, STAGES)[1].reason == str(causes.NOT_STARTED)
    submission.note_cancelled(["7", "9"])
    rows = look(submission, store, STAGES)
    assert [(row.state, row.reason) for row in rows] == [("cancelled", str(causes.CANCELLED))] * 2


def test_an_array_is_described_task_by_task(
    monkeypatch: pytest.MonkeyPatch, store: Store, submission: Submission
) -> None:
    play(
        monkeypatch, "8|0|COMPLETED|None|alpha|0:10", "8|1|CANCELLED|None|alpha|0:10",
        "8|2|FAILED|NonZeroExitCode|alpha|0:10", "8|3|OUT_OF_MEMORY|None|beta|0:10",
        "8|4|OUT_OF_MEMORY|None|beta|0:10", "8|5|PENDING|JobArrayTaskLimit||0:00",
    )  # fmt: skip
    (submission.logs / "01-shard-clean-8_2.log").write_text("sesame job: texts/a.txt is gone\n")
    row = look(submission, store, STAGES)[1]
    assert row.state == "waiting"  # a task may still run, so the array is not over
    found = {tuple(each.numbers): (each.state, each.reason) for each in row.tasks}
    assert found == {
        (0,): ("done", ""),
        (1,): ("cancelled", str(causes.CANCELLED)),
        (2,): ("failed", "sesame job: texts/a.txt is gone"),
        (3, 4): ("failed", str(causes.OUT_OF_MEMORY)),
        (5,): ("waiting", "JobArrayTaskLimit"),
    }
    console = Console(width=300, record=True)
    console.print(as_table(submission, [row]))
    assert "tasks 3-4" in console.export_text()


def test_a_task_that_makes_an_output_has_its_own_row_and_log(
    monkeypatch: pytest.MonkeyPatch, store: Store, submission: Submission
) -> None:
    tasks = [
        SubmittedJob("09-finetune", f"7_{task}", "finetune", f"seed={task}", f"finetune/{task}", [])
        for task in (1, 11)
    ]
    submission.write_jobs(tasks)
    for task in (1, 11):
        (submission.logs / f"09-finetune-7_{task}.log").write_text("")
    play(monkeypatch, "7|1|RUNNING|None|alpha|0:10", "7|11|PENDING|Priority||0:00")
    rows = look(submission, store, STAGES)
    assert [(row.job.title, row.state) for row in rows] == [
        ("09-finetune[1]", "running"), ("09-finetune[11]", "waiting"),
    ]  # fmt: skip
    assert [row.log and row.log.name for row in rows] == [
        "09-finetune-7_1.log", "09-finetune-7_11.log",
    ]  # fmt: skip


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
    pieces = store.output("shard", "abcd").path / UNITS
    pieces.mkdir(parents=True)
    for number in range(2):
        assert look(submission, store, STAGES)[1].state == "ended"
        (pieces / f".share-clean-{number}-of-2").touch()
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
