import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from data_prep.errors import UsageError
from pipeline.training import rank
from pipeline.training.config import TrainerConfig
from pipeline.training.exits import REPORTS
from pipeline.training.launch import is_for_srun, srun_options
from pipeline.training.rank import interface_to
from pipeline.training.stopping import StopRequest


def in_job(monkeypatch: pytest.MonkeyPatch, nodes: int, tasks: int) -> None:
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", str(nodes))
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", str(tasks))
    monkeypatch.delenv("SLURM_STEP_ID", raising=False)


def ranks(num_nodes: int, devices: int) -> TrainerConfig:
    return TrainerConfig(strategy="ddp", num_nodes=num_nodes, devices=devices)


def test_srun_starts_ranks_where_the_job_has_a_task_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_job(monkeypatch, 2, 4)
    assert is_for_srun(ranks(2, 4))
    assert not is_for_srun(ranks(1, 4))  # a part of the job, on its first node


def test_inside_a_step_ranks_are_started_here(monkeypatch: pytest.MonkeyPatch) -> None:
    in_job(monkeypatch, 1, 1)
    assert is_for_srun(ranks(1, 1))
    monkeypatch.setenv("SLURM_STEP_ID", "0")  # as submitit's jobs are
    assert not is_for_srun(ranks(1, 1))


def test_a_step_gets_the_cpus_of_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    assert not any("cpus" in option for option in srun_options(ranks(2, 4)))
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "8")
    options = srun_options(ranks(2, 4))
    assert {"--cpus-per-task=8", "--nodes=2", "--ntasks-per-node=4"} < set(options)


def test_several_nodes_without_such_a_job_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_NUM_NODES", raising=False)
    with pytest.raises(UsageError, match=r"this is no job.*sesame submit"):
        is_for_srun(ranks(2, 4))
    in_job(monkeypatch, 2, 1)
    with pytest.raises(UsageError, match="the job has 2 nodes and 1 tasks per node"):
        is_for_srun(ranks(2, 4))


def test_the_interface_to_a_node_is_found_by_its_address() -> None:
    assert interface_to("127.0.0.1").startswith("lo")


def test_a_finished_rank_ends_with_its_code_whatever_native_objects_do(tmp_path: Path) -> None:
    """An object that aborts when it is destroyed stands for gloo's threads."""
    done = tmp_path / "done"
    code = (
        "import atexit, os, pathlib\n"
        "from pipeline.training.rank import leave\n"
        "class Native:\n"
        "    def __del__(self, abort=os.abort): abort()\n"
        "native = Native()\n"
        f"atexit.register(pathlib.Path({str(done)!r}).touch)\n"
        "leave(75)\n"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 75
    assert done.exists()


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.ESTALE])
def test_a_disk_that_fails_under_a_rank_is_told_in_a_sentence(number: int, tmp_path: Path) -> None:
    def fail(run_dir: Path, stop: StopRequest) -> bool:
        raise OSError(number, os.strerror(number))

    (tmp_path / REPORTS).mkdir()
    assert rank.train_to_end(tmp_path, StopRequest(), fail) == 1
    said = (tmp_path / REPORTS / "0.error").read_text()
    assert os.strerror(number) in said and "the same command goes on" in said


def test_other_errors_of_a_rank_keep_their_traceback(tmp_path: Path) -> None:
    def fail(run_dir: Path, stop: StopRequest) -> bool:
        raise ConnectionResetError(errno.ECONNRESET, "a bug, or a lost peer")

    with pytest.raises(ConnectionResetError):
        rank.train_to_end(tmp_path, StopRequest(), fail)
