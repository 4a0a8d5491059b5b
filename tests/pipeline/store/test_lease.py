import errno
import json
import multiprocessing
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data_prep.errors import SesameError
from pipeline.store import lease as lease_module
from pipeline.store.lease import lease, read_holder


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


def holder_elsewhere(**changes: Any) -> dict[str, Any]:
    return {
        "host": "node7", "pid": 1, "pid_namespace": "x", "started": 0.0, "job": None,
        "restart": None, "token": "t",
    } | changes  # fmt: skip


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


def test_a_beat_that_fails_costs_a_beat_and_not_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch, refused = os.utime, []

    def refuse_once(*arguments: Any) -> None:
        if not refused:
            refused.append(arguments)
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        touch(*arguments)

    monkeypatch.setattr(lease_module.os, "utime", refuse_once)
    monkeypatch.setattr(lease_module, "BEAT_SECONDS", 0.01)
    path = tmp_path / "lease.json"
    with lease(path, lambda: False, print) as held:
        first = path.stat().st_mtime_ns
        deadline = time.monotonic() + 60
        while path.stat().st_mtime_ns == first:
            assert time.monotonic() < deadline, "it beats no more"
            time.sleep(0.01)
        assert held is not None and held.is_held() and refused


def test_a_silent_holder_elsewhere_is_stale_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "STALE_SECONDS", 0.3)
    monkeypatch.setattr(lease_module, "LOOK_SECONDS", 0.05)
    path = tmp_path / "lease.json"
    path.write_text(json.dumps(holder_elsewhere(job="12")))
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


@pytest.mark.parametrize("content", [b"", b'{"host": "nod', b"[]", b'{"host": "node7"}', b"\xff"])
def test_a_damaged_lease_is_stale_when_it_does_not_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setattr(lease_module, "STALE_SECONDS", 0.3)
    monkeypatch.setattr(lease_module, "LOOK_SECONDS", 0.05)
    path = tmp_path / "lease.json"
    path.write_bytes(content)
    looks = 0

    def is_done() -> bool:
        nonlocal looks
        looks += 1
        assert looks < 100, "the waiter does not sleep, or waits for ever"
        return False

    said: list[str] = []
    with lease(path, is_done, said.append) as held:
        assert held is not None and held.is_held()
    assert len(said) == 2
    assert "damaged" in said[0] and str(path) in said[0]
    assert "damaged" in said[1] and said[1].startswith("taking over")
    assert list(tmp_path.iterdir()) == []


class Turns:
    """Runs functions in threads, one at a time; who goes on at each file operation is drawn."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._change = threading.Condition()
        self._waiting: set[threading.Thread] = set()
        self._turn: threading.Thread | None = None
        self._threads: list[threading.Thread] = []

    def step(self) -> None:
        """Let others go on before this thread does."""
        me = threading.current_thread()
        if me in self._threads:
            with self._change:
                self._waiting.add(me)
                self._turn = None
                self._change.notify_all()
                self._change.wait_for(lambda: self._turn is me)
                self._waiting.remove(me)

    def before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*arguments: Any, **options: Any) -> Any:
            self.step()
            return function(*arguments, **options)

        return stepping

    def run(self, functions: list[Callable[[], None]]) -> None:
        failures: list[BaseException] = []

        def guarded(function: Callable[[], None]) -> None:
            self.step()
            try:
                function()
            except BaseException as error:
                failures.append(error)
            with self._change:
                self._turn = None
                self._threads.remove(threading.current_thread())
                self._change.notify_all()

        threads = [threading.Thread(target=guarded, args=(f,), daemon=True) for f in functions]
        self._threads = list(threads)
        for thread in threads:
            thread.start()
        while True:
            with self._change:
                ready = self._change.wait_for(
                    lambda: self._turn is None and self._waiting >= set(self._threads), 20
                )
                assert ready, "a thread hangs"
                if not self._threads:
                    break
                self._turn = self._draw.choice(self._threads)
                self._change.notify_all()
        assert failures == []


@pytest.mark.parametrize("links", [True, False])
def test_in_any_interleaving_one_holds_the_lease_and_nobody_loses_a_fresh_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """Three waiters take over from a dead process; they may be stopped at any file operation."""
    real = {name: getattr(os, name) for name in ("link", "rename", "replace", "unlink", "open")}

    def no_link(*arguments: Any) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    me = lease_module._identity()
    for seed in range(60):
        path = tmp_path / str(seed) / "lease.json"
        path.parent.mkdir()
        dead = holder_elsewhere(host=me["host"], pid_namespace=me["pid_namespace"], pid=2**22 + 1)
        path.write_text(json.dumps(dead))
        turns = Turns(seed)
        for name, function in real.items():
            chosen = no_link if name == "link" and not links else function
            monkeypatch.setattr(os, name, turns.before(chosen))
        monkeypatch.setattr(lease_module, "_look", turns.before(lease_module._look))
        monkeypatch.setattr(lease_module.time, "sleep", lambda seconds: turns.step())  # noqa: B023
        inside: list[int] = []
        entered: list[int] = []

        def work(number: int) -> None:
            with lease(path, lambda: False, lambda text: None) as held:  # noqa: B023
                assert held is not None
                inside.append(number)  # noqa: B023
                entered.append(number)  # noqa: B023
                for _ in range(3):
                    held.check()
                    held.beat()
                    turns.step()  # noqa: B023
                    assert inside == [number]  # noqa: B023
                inside.remove(number)  # noqa: B023

        turns.run([lambda number=number: work(number) for number in range(3)])  # type: ignore[misc]
        assert sorted(entered) == [0, 1, 2]
        monkeypatch.undo()
        assert list(path.parent.iterdir()) == []


def put_lease(path: Path, **changes: Any) -> lease_module._Seen:
    path.write_text(json.dumps(holder_elsewhere(**changes)))
    seen = lease_module._look(path)
    assert seen is not None
    return seen


def test_a_beat_between_judgement_and_claim_saves_the_holder(tmp_path: Path) -> None:
    path = tmp_path / "lease.json"
    stale = put_lease(path)
    os.utime(path, ns=(0, 5))
    assert not lease_module._take_over(path, stale, lease_module._identity())
    assert read_holder(path) == holder_elsewhere()
    assert list(tmp_path.iterdir()) == [path]


def test_who_judged_too_early_does_not_touch_a_fresh_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two waiters judge one lease stale; the second acts when the first has already taken over."""
    path = tmp_path / "lease.json"
    stale = put_lease(path)
    first, second = lease_module._identity(), lease_module._identity()
    assert lease_module._take_over(path, stale, first)
    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, lambda *arguments: pytest.fail("a fresh lease was moved"))
    assert not lease_module._take_over(path, stale, second)
    assert read_holder(path) == first


def test_a_waiter_that_slept_through_the_loss_of_its_claim_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another waiter removes the sleeper's claim and takes over before the sleeper renames it."""
    path = tmp_path / "lease.json"
    stale = put_lease(path)
    sleeper, other = lease_module._identity(), lease_module._identity()
    rename = os.rename

    def asleep(claim: Path, target: Path) -> None:
        monkeypatch.setattr(os, "rename", rename)
        claim.unlink()
        assert lease_module._take_over(path, stale, other)
        os.rename(claim, target)

    monkeypatch.setattr(os, "rename", asleep)
    assert not lease_module._take_over(path, stale, sleeper)
    assert read_holder(path) == other
    assert list(tmp_path.iterdir()) == [path]


def test_a_claim_that_a_killed_process_left_blocks_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "STALE_SECONDS", 0.2)
    monkeypatch.setattr(lease_module, "LOOK_SECONDS", 0.02)
    path = tmp_path / "lease.json"
    put_lease(path)
    put_lease(lease_module._claim_path(path), token="u")
    with lease(path, lambda: False, print) as held:
        assert held is not None and held.is_held()
        put_lease(lease_module._claim_path(path), token="v")
    assert list(tmp_path.iterdir()) == []


def test_a_lease_that_another_node_replaces_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lease.json"
    answers = [errno.ESTALE, errno.ESTALE]

    def opened(*arguments: Any) -> Any:
        if answers:
            raise OSError(answers.pop(), "refused")
        return open(*arguments)

    with lease(path, lambda: False, print) as held:
        assert held is not None
        monkeypatch.setattr(lease_module, "open", opened, raising=False)
        held.check()
        answers.append(errno.EIO)
        with pytest.raises(SesameError, match=r"lease\.json: the lease cannot be read \(refused\)"):
            held.check()
        answers.extend([errno.ESTALE] * 50)
        with pytest.raises(SesameError, match="stale file handle"):
            held.check()
        answers.clear()


@pytest.mark.parametrize("name", ["link", "rename"])
def test_a_stale_handle_costs_an_attempt_and_not_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(lease_module, "LOOK_SECONDS", 0.01)
    path = tmp_path / "lease.json"
    me = lease_module._identity()
    put_lease(path, host=me["host"], pid_namespace=me["pid_namespace"], pid=2**22 + 1)
    real, refused = getattr(os, name), []

    def refuse_once(*arguments: Any) -> None:
        if not refused:
            refused.append(arguments)
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        real(*arguments)

    monkeypatch.setattr(os, name, refuse_once)
    with lease(path, lambda: False, print) as held:
        assert held is not None and held.is_held() and refused
    assert list(tmp_path.iterdir()) == []
