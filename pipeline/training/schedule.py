"""Schedules: the steps that a budget allows, the phases and the learning rate. Pure arithmetic.

A budget in tokens is converted to steps before training starts, from the examples' mean tokens per
row. A budget in hours is not converted: the learning rate then follows the clock.
"""

import math
from dataclasses import dataclass

from data_prep.errors import UsageError
from pipeline.data.cursor import BatchSchedule
from pipeline.training.config import OptimConfig, TrainerConfig


@dataclass(frozen=True)
class Phase:
    """Steps `first` up to `end` (exclusive) on one set of examples; `end` is None for a budget in
    hours."""

    number: int
    first: int
    end: int | None


def check_budget(trainer: TrainerConfig, phases: int) -> None:
    """Raise `UsageError` without a budget, or for a budget in hours with several phases."""
    if trainer.max_hours is not None and phases > 1:
        raise UsageError(
            f"trainer.max_hours={trainer.max_hours:g}: phases need a budget known before "
            "training; set trainer.max_steps or trainer.max_tokens"
        )
    if trainer.max_steps is None and trainer.max_tokens is None and trainer.max_hours is None:
        raise UsageError(
            "no budget to train for; set trainer.max_steps, trainer.max_tokens or trainer.max_hours"
        )


def plan_phases(
    trainer: TrainerConfig, shares: list[float], tokens_per_row: list[float]
) -> list[Phase]:
    """Return the phases in order, without those that get no step.

    shares          per phase, its share of the budget
    tokens_per_row  per phase, the mean tokens per row of its examples
    """
    check_budget(trainer, len(shares))
    if trainer.max_steps is not None:
        ends = [round(trainer.max_steps * sum(shares[: n + 1])) for n in range(len(shares))]
    elif trainer.max_tokens is not None:
        ends = _ends_by_tokens(trainer.max_tokens, trainer, shares, tokens_per_row)
    else:
        return [Phase(0, 0, None)]
    firsts = [0, *ends[:-1]]
    return [
        Phase(number, first, end)
        for number, (first, end) in enumerate(zip(firsts, ends, strict=True))
        if end > first
    ]


def _ends_by_tokens(
    budget: int, trainer: TrainerConfig, shares: list[float], tokens_per_row: list[float]
) -> list[int]:
    batches = BatchSchedule(trainer.global_batch_size, trainer.ramp_steps)
    ends: list[int] = []
    for share, tokens in zip(shares, tokens_per_row, strict=True):
        first = ends[-1] if ends else 0
        ends.append(first + _steps_for(budget * share / tokens, batches, first))
    return ends


def _steps_for(rows: float, batches: BatchSchedule, first: int) -> int:
    """Return the number of steps, from step `first` on, that read at least `rows` rows."""
    step = first
    while rows > 0 and step < batches.ramp_steps:
        rows -= batches.size(step)
        step += 1
    return step - first + max(0, math.ceil(rows / batches.global_batch_size))


def phase_at(phases: list[Phase], step: int) -> Phase:
    """Return the phase of step number `step`; the last phase for a step after the end."""
    return next((phase for phase in phases if phase.end is None or step < phase.end), phases[-1])


def learning_rate(optim: OptimConfig, done: float) -> float:
    """Return the learning rate after a share `done` (0 to 1) of the budget."""
    done = min(max(done, 0.0), 1.0)
    if done < optim.warmup:
        return optim.lr * (optim.start + (1 - optim.start) * done / optim.warmup)
    rest = (1 - done) / (1 - optim.warmup) if optim.warmup < 1 else 1.0
    match optim.schedule:
        case "linear":
            factor = rest
        case "cosine":
            factor = (1 - math.cos(math.pi * rest)) / 2
        case "wsd":
            factor = min(1.0, (1 - done) / optim.decay) if optim.decay else 1.0
        case _:
            factor = 1.0
    return optim.lr * factor
