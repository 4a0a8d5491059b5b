"""Budgets, phases and learning rates."""

import pytest

from data_prep.errors import UsageError
from pipeline.data.cursor import BatchSchedule
from pipeline.training.config import OptimConfig, TrainerConfig
from pipeline.training.schedule import check_budget, learning_rate, phase_at, plan_phases


def plan(trainer: TrainerConfig, *phases: tuple[float, float]) -> list[tuple[int, int | None]]:
    shares, tokens_per_row = zip(*phases, strict=True)
    found = plan_phases(trainer, list(shares), list(tokens_per_row))
    return [(phase.first, phase.end) for phase in found]


def test_phases_share_a_budget_in_steps() -> None:
    trainer = TrainerConfig(max_steps=1_000_000)
    assert plan(trainer, (0.9, 100.0), (0.1, 400.0)) == [(0, 900_000), (900_000, 1_000_000)]


def test_shares_that_do_not_divide_still_use_every_step() -> None:
    phases = plan(TrainerConfig(max_steps=10), (1 / 3, 1.0), (1 / 3, 1.0), (1 / 3, 1.0))
    assert [first for first, _ in phases] == [0, *(end for _, end in phases[:-1])]
    assert phases[-1][1] == 10


def test_a_phase_too_small_for_a_step_is_left_out() -> None:
    found = plan_phases(TrainerConfig(max_steps=4), [0.01, 0.99], [1.0, 1.0])
    assert [(phase.number, phase.first, phase.end) for phase in found] == [(1, 0, 4)]


def test_tokens_become_steps_by_the_mean_row() -> None:
    trainer = TrainerConfig(max_tokens=1_000_000, global_batch_size=100)
    assert plan(trainer, (1.0, 50.0)) == [(0, 200)]
    assert plan(trainer, (0.5, 50.0), (0.5, 500.0)) == [(0, 100), (100, 110)]


def test_a_ramp_takes_more_steps_for_the_same_tokens() -> None:
    trainer = TrainerConfig(max_tokens=100_000, global_batch_size=100, ramp_steps=30)
    (phase,) = plan_phases(trainer, [1.0], [10.0])
    schedule = BatchSchedule(100, 30)
    assert phase.end is not None
    rows = [schedule.size(step) for step in range(phase.end)]
    assert sum(rows) >= 10_000 > sum(rows[:-1])


def test_hours_have_no_last_step() -> None:
    assert plan(TrainerConfig(max_hours=2.0), (1.0, 100.0)) == [(0, None)]


def test_budgets_that_cannot_be() -> None:
    with pytest.raises(UsageError, match=r"trainer\.max_steps"):
        check_budget(TrainerConfig(), 1)
    with pytest.raises(UsageError, match=r"trainer\.max_hours=2: phases"):
        check_budget(TrainerConfig(max_hours=2.0), 2)


def test_the_phase_of_a_step() -> None:
    phases = plan_phases(TrainerConfig(max_steps=10), [0.5, 0.5], [1.0, 1.0])
    assert [phase_at(phases, step).number for step in (0, 4, 5, 9, 10)] == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant", "wsd"])
def test_the_rate_warms_up_to_its_peak_and_never_exceeds_it(schedule: str) -> None:
    optim = OptimConfig(lr=2.0, warmup=0.1, schedule=schedule, decay=0.2)
    rates = [learning_rate(optim, step / 1000) for step in range(1001)]
    assert rates[0] == 0
    assert rates[50] == pytest.approx(1.0)
    assert rates[100] == pytest.approx(2.0) == max(rates)
    assert rates[:101] == sorted(rates[:101])
    assert rates[100:] == sorted(rates[100:], reverse=True)


def test_where_each_schedule_ends() -> None:
    def rate(schedule: str, done: float) -> float:
        return learning_rate(OptimConfig(lr=1.0, warmup=0.0, schedule=schedule, decay=0.2), done)

    assert [rate(name, 1.0) for name in ("linear", "cosine", "constant", "wsd")] == [0, 0, 1, 0]
    assert [rate(name, 0.5) for name in ("linear", "cosine", "wsd")] == pytest.approx([0.5, 0.5, 1])
    assert rate("wsd", 0.8) == pytest.approx(1.0)
    assert rate("wsd", 0.9) == pytest.approx(0.5)


def test_warm_up_rises_from_the_starting_share() -> None:
    """The triangle of Geiping and Goldstein: from a quarter up to the peak, then down to zero."""
    optim = OptimConfig(lr=2.0, schedule="linear", warmup=0.75, start=0.25)
    found = [learning_rate(optim, done) for done in (0.0, 0.375, 0.75, 0.875, 1.0)]
    assert found == pytest.approx([0.5, 1.25, 2.0, 1.0, 0.0])
