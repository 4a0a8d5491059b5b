"""One optimizer step of pretraining: micro-batches, global loss, update; thin around the network.

Losses are divided by what the *global* batch has to predict, over all ranks and micro-batches, so
that neither the number of ranks nor the micro-batch changes a gradient. A Lightning batch is a
whole optimizer step; its micro-batches are looped over here (manual optimisation).
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch
from pytorch_lightning import LightningModule
from torch import Tensor, nn

from pipeline.data.cursor import Identity
from pipeline.data.loader import Step
from pipeline.training import guard
from pipeline.training.checkpoint import TrainingState
from pipeline.training.config import OptimConfig, TrainerConfig
from pipeline.training.exits import Diverged, Dropped
from pipeline.training.objective import AnyBatch, AnyLosses, Objective, seed_of
from pipeline.training.optimizer import make_optimizer
from pipeline.training.schedule import Phase, learning_rate, phase_at
from pipeline.training.strategy import Engine
from pipeline.training.sums import Sums

DROPPED_AT_MOST = 5  # steps in a row; then training has diverged


@dataclass(frozen=True)
class Outcome:
    """What came of a step, the same on every rank."""

    sums: Sums  # of the global batch
    lr: float
    gradient_norm: float
    rejected: str | None  # why the step changed no weight
    phase: int
    rows: int  # of the global batch


class Pretraining(LightningModule):
    """The network, its optimizer and the run's state."""

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        optim: OptimConfig,
        trainer_config: TrainerConfig,
        state: TrainingState,
        phases: list[Phase],
        identities: list[Identity],
        stop_requested: Callable[[], bool],
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.model = model
        # Taken now: ZeRO 3 will leave empty tensors where parameters were.
        self.shapes = {name: part.shape for name, part in model.named_parameters()}
        self.objective = objective
        self.optim = optim
        self.config = trainer_config
        self.phases, self.identities = phases, identities
        self.state = state
        self.outcome: Outcome | None = None
        self.stop_agreed = False
        self.compute_seconds = 0.0  # in forward, backward and update, for timing.jsonl
        self._stop_requested = stop_requested
        self._started = 0.0

    @property
    def engine(self) -> Engine:
        return cast(Engine, self.trainer.strategy)

    def on_train_start(self) -> None:
        self._started = time.monotonic() - self.state.seconds

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return make_optimizer(self, self.optim)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, index: int) -> Any:
        return batch  # micro-batches move one by one, as they are needed

    def forward(self, *inputs: Any) -> Any:
        with self._precision():
            return self.model(*inputs)

    def _precision(self) -> AbstractContextManager[Any]:
        if self.config.precision == "bf16-mixed":
            return torch.autocast(self.device.type, torch.bfloat16)
        return nullcontext()

    @property
    def total_steps(self) -> int | None:
        return self.phases[-1].end

    @property
    def finished(self) -> bool:
        """Whether the budget is spent."""
        if self.total_steps is not None:
            return self.state.step >= self.total_steps
        assert self.config.max_hours is not None
        return self.state.seconds >= self.config.max_hours * 3600

    def training_step(self, step: Step, index: int) -> None:
        started = time.monotonic()
        engine, state, objective = self.engine, self.state, self.objective
        asked = self._count(step.micro_batches)
        lr = learning_rate(self.optim, self._done())
        engine.set_learning_rate(lr)
        objective.begin(state.step, self.device)
        parts: list[AnyLosses] = []
        for number, batch in enumerate(step.micro_batches):
            last = number == len(step.micro_batches) - 1
            torch.manual_seed(seed_of(self.config.seed, state.step, number, engine.rank))
            losses = objective.losses(partial(engine.forward, last), batch.to(self.device))
            parts.append(losses)
            loss = objective.mean(losses, asked)
            if last:
                sums = asked + self._agree(parts)
                rejected = self._fault(sums.loss)
                if rejected:
                    loss = loss * math.nan  # the one way to drop a step that all engines know
            engine.accumulate_gradients(loss)
        norm = engine.update(self.optim.clip)
        if rejected is None and not math.isfinite(norm):
            rejected = "the gradient is not finite"
        objective.end(accepted=rejected is None)
        self.outcome = Outcome(sums, lr, norm, rejected, state.cursor.phase, step.rows)
        self._advance(step, self.outcome)
        self.compute_seconds += time.monotonic() - started

    def _count(self, batches: Sequence[AnyBatch]) -> Sums:
        """What the global batch asks, and the time on rank 0's clock, which all ranks follow."""
        mine = sum((self.objective.count(batch) for batch in batches), Sums())
        clock = time.monotonic() - self._started if self.engine.rank == 0 else 0.0
        *values, self.state.seconds = self.engine.all_reduce_sum([*mine.values(), clock])
        return Sums(*values)

    def _done(self) -> float:
        """The share of the budget spent, in the middle of this step."""
        if self.total_steps is not None:
            return (self.state.step + 0.5) / self.total_steps
        assert self.config.max_hours is not None
        return self.state.seconds / (self.config.max_hours * 3600)

    def _agree(self, parts: list[AnyLosses]) -> Sums:
        """Sums over all ranks, and with them whether any rank was asked to stop."""
        totals = sum(torch.stack([loss.detach().float() for loss in part]) for part in parts)
        mine = [*cast(Tensor, totals).tolist(), float(self._stop_requested())]
        *everyones, stops = self.engine.all_reduce_sum(mine)
        self.stop_agreed = self.stop_agreed or stops > 0
        return Sums(**dict(zip(parts[0]._fields, everyones, strict=True)))

    def _fault(self, loss: float) -> str | None:
        """Why a step with this loss must not change the weights, if so."""
        reason = guard.fault(loss, self.state.recent_losses)
        if reason is None:
            self.state.recent_losses = guard.remember(loss, self.state.recent_losses)
        return reason

    def _advance(self, step: Step, outcome: Outcome) -> None:
        state = self.state
        state.step += 1
        state.cursor = replace(state.cursor, position=step.next_row)
        state.tokens += int(outcome.sums.tokens)
        if outcome.rejected is None:
            state.updates += 1
            state.dropped_steps, state.dropped_since = 0, None
        else:
            self._drop(step, outcome.rejected)
        phase = phase_at(self.phases, state.step)
        if phase.number != state.cursor.phase:
            state.begin_phase(phase.number, self.identities[phase.number])

    def _drop(self, step: Step, reason: str) -> None:
        state = self.state
        state.cursor = state.cursor.skip(step.first_row, step.next_row)
        state.dropped_steps += 1
        if state.dropped_since is None:
            state.dropped_since = step.first_row
        if state.dropped_steps > DROPPED_AT_MOST:
            span = (state.cursor.phase, state.dropped_since, step.next_row)
            raise Diverged(Dropped(*span, reason))
