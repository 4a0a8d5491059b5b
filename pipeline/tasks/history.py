"""The development scores of a fine-tuning so far, and the journal that keeps them.

A line of the journal has the step, the epoch, the mean loss since the line before, learning rate
and gradient norm; after an evaluation also `dev_<metric>`. A resumed training reads its scores from
the journal, so no checkpoint stores them.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from pipeline.models.sums import Sums

LOSS, COUNTED = "loss_sum", "answers"  # names in `Sums`: the loss, and what it is divided by


@dataclass(frozen=True)
class Evaluation:
    """A score on the development set."""

    number: int  # counted from 1
    step: int  # optimizer steps before it
    epoch: int
    score: float


@dataclass
class History:
    """All evaluations of a training. `patience`: see finetune.patience."""

    metric: str
    patience: int | None
    evaluations: list[Evaluation] = field(default_factory=list)

    def read(self, lines: Iterable[dict[str, Any]], until: int) -> None:
        """Take over the evaluations of a journal up to step `until`."""
        scored = [line for line in lines if self.key in line and line["step"] <= until]
        self.evaluations = [
            Evaluation(number, line["step"], line["epoch"], line[self.key])
            for number, line in enumerate(scored, 1)
        ]

    @property
    def key(self) -> str:
        """The name of the score in the journal."""
        return f"dev_{self.metric}"

    @property
    def best(self) -> Evaluation | None:
        """The first evaluation with the highest score; None before the first evaluation."""
        return max(self.evaluations, key=lambda each: each.score, default=None)

    def best_before(self, step: int) -> Evaluation | None:
        """Return the best evaluation before `step`; used when training is rolled back to `step`."""
        earlier = [each for each in self.evaluations if each.step < step]
        return max(earlier, key=lambda each: each.score, default=None)

    def add(self, step: int, epoch: int, score: float) -> bool:
        """Add an evaluation; return True if it is the best so far."""
        evaluation = Evaluation(len(self.evaluations) + 1, step, epoch, score)
        self.evaluations.append(evaluation)
        return self.best is evaluation

    @property
    def ends_early(self) -> bool:
        """True after `patience` evaluations without a better score.

        F1 and correlation stay 0 while the head predicts a constant; that does not end training.
        """
        best = self.best
        if best is None or self.patience is None or best.score <= 0:
            return False
        return len(self.evaluations) - best.number >= self.patience


class Trained(NamedTuple):
    """What a loop returns of a training."""

    history: History
    cut: int  # training and development inputs that were truncated


class Follower(Protocol):
    """Receives what a fine-tuning reports while it trains."""

    def write(self, line: dict[str, Any]) -> None:
        """Take a line of the journal."""

    def evaluated(self, evaluation: Evaluation) -> None:
        """Take a score; may raise to end the training."""


class NullFollower:
    """A follower that ignores everything."""

    def write(self, line: dict[str, Any]) -> None:
        """Ignore a line."""

    def evaluated(self, evaluation: Evaluation) -> None:
        """Ignore a score."""


def journal_line(
    step: int, epoch: int, window: Sums, learning_rate: float, gradient_norm: float
) -> dict[str, Any]:
    """Return a line of the journal; `window` has the sums since the line before."""
    return {
        "step": step,
        "epoch": epoch,
        "loss": window.mean(LOSS, COUNTED),
        "learning_rate": learning_rate,
        "gradient_norm": gradient_norm if math.isfinite(gradient_norm) else None,
    }
