import errno
import json
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import pytest

from data_prep.errors import SesameError
from pipeline import lease as lease_module
from pipeline.lease import lease, read_holder


def hold_and_die(path: Path) -> None:
    with lease(path, lambda: False, print):
        os._exit(9)


def hold_for_a_moment(path: Path, log: Path) -> None:
    with lease(path, lambda: False, print):
        with open(log, "a") as stream:
            stream.write(f"in {os.getpid()}\n")
        time.sleep(0.2)
        with open(log, "a") as stream:
            stream.write(f"out {os.getpid()}\n")


def in_process(function: Any, *arguments: Any) -> multiprocessing.Process:
    process = multiprocessing.get_context("fork").Process(target=function, args=arguments)
    process.start()
    return process


def test_a_lease_is_given_back(tmp_path: Path) -> None:
    path = tmp_path / "lease.json"
    with lease(path, lambda: False, print) as held:
        assert held is not None and held.is_held()
        assert read_holder(path) is not None
    assert list(tmp_path.iterdir()) == []


def test_two_launches_never_work_at_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    processes = [in_process(hold_for_a_moment, tmp_path / "lease.json", log) for _ in range(4)]
    for process in processes:
        process.join()
    lines = [line.split() for line in log.read_text().splitlines()]
    assert len(lines) == 8
    for first, second in zip(lines[::2], lines[1::2], strict=True):
        assert (first[0], second[0]) == ("in", "out")
        assert first[1] == second[1]


def test_the_lease_of_a_killed_process_is_taken_over_at_once(tmp_path: Path) -> None:
    path = tmp_path / "lease.json"
    process = in_process(hold_and_die, path)
    process.join()
    assert read_holder(path) is not None
    said: list[str] = []
    with lease(path, lambda: False, said.append) as held:
        assert held is not None
    assert "taking over from" in said[0]


def test_a_full_disk_costs_a_beat_and_not_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, refused = lease_module.write_atomically, []

    def refuse_once(path: Path, content: str) -> None:
        if not refused:
            refused.append(path)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, content)

    monkeypatch.setattr(lease_module, "write_atomically", refuse_once)
    monkeypatch.setattr(lease_module, "BEAT_SECONDS", 0.01)
    path = tmp_path / "lease.json"
    with lease(path, lambda: False, print) as held:
        deadline = time.monotonic() + 60
        while (read_holder(path) or {"beats": 0})["beats"] < 2:
            assert time.monotonic() < deadline, "it beats no more"
            time.sleep(0.01)
        assert held is not None and held.is_held() and refused


def test_a_silent_holder_elsewhere_is_stale_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "STALE_SECONDS", 0.3)
    monkeypatch.setattr(lease_module, "LOOK_SECONDS", 0.05)
    path = tmp_path / "lease.json"
    elsewhere = {
        "host": "node7", "pid": 1, "pid_namespace": "x", "started": 0.0, "job": "12",
        "restart": None, "token": "t", "beats": 3,
    }  # fmt: skip
    path.write_text(json.dumps(elsewhere))
    said: list[str] = []
    with lease(path, lambda: False, said.append) as held:
        assert held is not None
    assert said[0] == "waiting for process 1 on node7, SLURM job 12, which works on the same output"


def test_a_requeued_job_takes_over_from_its_own_orphan_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lease.json"
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    with lease(path, lambda: False, print) as orphan:  # alive, but on a node that SLURM lost
        assert orphan is not None
        monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
        with lease(path, lambda: False, print) as requeued:
            assert requeued is not None
            with pytest.raises(SesameError, match="taken over"):
                orphan.check()
            requeued.check()


def test_who_waits_leaves_when_the_work_is_done(tmp_path: Path) -> None:
    path = tmp_path / "lease.json"
    with lease(path, lambda: False, print), lease(path, lambda: True, print) as second:
        assert second is None


def test_a_launch_that_lost_its_lease_may_not_write(tmp_path: Path) -> None:
    path = tmp_path / "lease.json"
    with lease(path, lambda: False, print) as held:
        assert held is not None
        holder = read_holder(path)
        assert holder is not None
        path.write_text(json.dumps(holder | {"token": "somebody else"}))
        with pytest.raises(SesameError, match="taken over"):
            held.check()
    assert read_holder(path) is not None  # the other's lease is left alone
