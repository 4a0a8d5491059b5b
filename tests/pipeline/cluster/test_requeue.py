"""How a job goes on that was told to leave, with SLURM's commands played by a function."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.cluster import slurm
from pipeline.cluster.frozen import Submission
from pipeline.cluster.requeue import WARNINGS, continue_job
from pipeline.commands import stages
from pipeline.commands.arguments import Arguments
from pipeline.commands.main import run
from pipeline.training.exits import INTERRUPTED, Interrupted


class Played:
    """Answers SLURM's commands and remembers them."""

    def __init__(self, state: str) -> None:
        self.state = state
        self.told: list[tuple[str, ...]] = []

    def __call__(self, *command: str) -> str:
        self.told.append(command)
        if command[:3] == ("scontrol", "show", "job"):
            return f"JobId=7 JobState={self.state} Reason=None"
        if command[0] == "squeue":
            return (
                "8|afterok:7(unfulfilled)\n9|afterok:7(unfulfilled),afterok:77(unfulfilled)\n5|\n"
                "10|afterok:5_2(unfulfilled),afterok:5_3(unfulfilled)\n"
            )
        return "12\n" if command[0] == "sbatch" else ""

    @property
    def changes(self) -> list[tuple[str, ...]]:
        """What was not only asked."""
        return [each for each in self.told if each[0] != "squeue" and "show" not in each]


@pytest.fixture(autouse=True)
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SESAME_CONTINUE", "requeue")
    monkeypatch.setenv("SESAME_SCRIPT", str(tmp_path / "05-pretrain.sbatch"))
    monkeypatch.delenv("SLURM_ARRAY_TASK_ID", raising=False)
    before = {number: signal.getsignal(number) for number in WARNINGS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def play(monkeypatch: pytest.MonkeyPatch, state: str = "RUNNING") -> Played:
    played = Played(state)
    monkeypatch.setattr(slurm, "call", played)
    return played


def test_a_running_job_is_requeued(monkeypatch: pytest.MonkeyPatch) -> None:
    played = play(monkeypatch)
    assert continue_job("step 40") == INTERRUPTED
    assert played.changes == [("scontrol", "requeue", "7")]


def test_a_refused_requeue_is_one_sentence_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    played = play(monkeypatch)

    def refuse(*command: str) -> str:
        if command[:2] == ("scontrol", "requeue"):
            raise slurm.Refused("scontrol: Job/step already completing or completed for job 7")
        return played(*command)

    def interrupted(arguments: Arguments) -> None:
        raise Interrupted("interrupted: pretrain, step 40")

    monkeypatch.setattr(slurm, "call", refuse)
    monkeypatch.setattr(stages, "stage", interrupted)
    assert run(["pretrain"]) == 1
    said = capfd.readouterr().err
    assert "job 7 cannot be requeued here (scontrol: Job/step already" in said
    assert "set continue: chain in the site file" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("state", ["CANCELLED", "COMPLETING", "PENDING", "PREEMPTED"])
def test_what_slurm_ends_itself_is_not_requeued(
    monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    played = play(monkeypatch, state)
    assert continue_job("step 40") == INTERRUPTED
    assert played.changes == []


@pytest.mark.parametrize("how", ["requeue", "chain", "by hand"])
def test_two_starts_that_get_no_further_end_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    monkeypatch.setenv("SESAME_CONTINUE", "requeue" if how == "by hand" else how)
    store = tmp_path / "store"
    if how == "by hand":  # sbatch slurm/stage.sbatch
        monkeypatch.delenv("SESAME_SCRIPT")
    played = play(monkeypatch)
    assert continue_job("step 40", store) == INTERRUPTED
    assert continue_job("step 60", store) == INTERRUPTED
    asked = len(played.changes)
    assert continue_job("step 60", store) == 1
    assert len(played.changes) == asked
    assert continue_job("step 61", store) == INTERRUPTED
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "5")
    for task in ("3", "4"):  # tasks of an array are at points of their own
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", task)
        assert continue_job("step 61", store) == INTERRUPTED


def test_a_job_whose_progress_is_not_known_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some commands, such as predict, go on where they were and cannot say how far that is."""
    monkeypatch.delenv("SESAME_SCRIPT")
    played = play(monkeypatch)
    for _ in range(3):
        assert continue_job("interrupted by USR1; run the same command to go on") == INTERRUPTED
    assert len(played.changes) == 3


def test_a_successor_takes_over_all_that_waits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SESAME_CONTINUE", "chain")
    played = play(monkeypatch)
    assert continue_job("step 40") == INTERRUPTED
    assert played.changes[1:] == [
        ("scontrol", "update", "JobId=8", "Dependency=afterok:12"),
        ("scontrol", "update", "JobId=9", "Dependency=afterok:12,afterok:77"),
    ]
    assert Submission(tmp_path).successors() == {"7": "12"}


def test_a_task_of_an_array_leaves_the_rest_to_the_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SESAME_CONTINUE", "chain")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    monkeypatch.setenv("SESAME_SHARES", "8")
    played = play(monkeypatch)
    assert continue_job("3 pieces made") == 0
    assert played.changes == []


def test_a_task_that_makes_an_output_is_submitted_again_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SESAME_CONTINUE", "chain")
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "5")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    played = play(monkeypatch)
    assert continue_job("epoch 1") == INTERRUPTED
    (submitted,) = [each for each in played.changes if each[0] == "sbatch"]
    assert "--array=3" in submitted
    assert Submission(tmp_path).successors() == {"5_3": "12_3"}
    assert ("scontrol", "update", "JobId=10", "Dependency=afterok:5_2,afterok:12_3") in played.told


def test_a_job_may_be_told_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SESAME_CONTINUE", "stop")
    played = play(monkeypatch)
    assert continue_job("step 40") == INTERRUPTED
    assert played.changes == []
