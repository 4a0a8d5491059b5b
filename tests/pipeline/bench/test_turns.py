"""Timing in turns: long works alternate, CPU seconds are the sides' own, noise is called noise."""

import os
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from pipeline.bench import turns
from pipeline.bench.figures import Figure, compared
from pipeline.bench.turns import OPENMP_VARIABLES, Spent, alternate, race
from pipeline.commands.bench import caption


def computing(log: Path, name: str, seconds: float) -> Callable[[], str]:
    """Prepare work that computes for so many CPU seconds and logs when it was running."""

    def work() -> str:
        with open(log, "a", buffering=1) as stream:
            while time.process_time() - before < seconds:
                stream.write(f"{name}\n")
                end = time.process_time() + 0.01
                while time.process_time() < end:
                    pass
        return name

    before = time.process_time()
    return work


def failing() -> Callable[[], str]:
    def work() -> str:
        raise ValueError("no such luck")

    return work


def test_long_works_take_turns_and_each_is_charged_its_own_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.05)
    log = tmp_path / "log"
    (short, first), (long, second) = race(
        [partial(computing, log, "short", 0.2)], partial(computing, log, "long", 0.4)
    )
    assert (first, second) == ("short", "long")
    names = log.read_text().split()
    changes = sum(one != other for one, other in pairwise(names))
    assert changes >= 4, names  # neither waited for the other to end
    assert 0.15 < short.core_seconds < 0.35 < long.core_seconds < 0.6


def test_a_side_that_fails_ends_the_race_with_its_error() -> None:
    with pytest.raises(ValueError, match="no such luck"):
        race([], failing)


def asked() -> Callable[[], list[str | None]]:
    return lambda: [os.environ.get(name) for name in OPENMP_VARIABLES]


def test_the_peer_does_not_run_with_our_threads_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OPENMP_VARIABLES:
        monkeypatch.setenv(name, "7")
    (_, ours), (_, peers) = race([asked], asked)
    assert ours == ["7"] * len(OPENMP_VARIABLES) and peers == [None] * len(OPENMP_VARIABLES)
    assert os.environ[OPENMP_VARIABLES[0]] == "7"


def test_short_calls_are_repeated_to_fill_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.03)
    calls: list[str] = []

    def call(name: str) -> None:
        calls.append(name)
        time.sleep(0.005)

    rounds = alternate(partial(call, "ours"), partial(call, "peer"), 2)
    assert calls.count("ours") > 4 and calls.count("peer") > 4
    assert all(0.005 <= each.seconds < 0.03 for pair in rounds for each in pair)


def rounds_of(*ratios: float) -> list[tuple[Spent, Spent]]:
    """Rounds in which the peer's wall time is so many times ours, and its CPU time thrice."""
    return [(Spent(1.0, 1.0, 0.0), Spent(ratio, 3.0, 0.0)) for ratio in ratios]


def test_a_ratio_whose_rounds_disagree_is_said_to_mean_nothing() -> None:
    steady = compared("a", 1, "x", rounds_of(2.0, 2.4, 2.2))
    unsteady = compared("b", 1, "x", rounds_of(0.65, 2.49, 7.9))
    assert not steady.is_unsteady and unsteady.is_unsteady
    assert steady.core_ratio == unsteady.core_ratio == 3.0
    assert caption([steady]) == ""
    assert "means nothing" in caption([steady, unsteady])


def test_a_busy_machine_is_named() -> None:
    assert "40% of this machine" in caption([Figure("a", 1.0, "x", others=0.4)])
