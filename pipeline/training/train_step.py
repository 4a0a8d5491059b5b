"""One optimizer step: forward and backward of every micro-batch, then one update.

Pretraining and fine-tuning take the same steps; they differ in objective, data and `Updates`.

The call chain of one step, on every rank:

    Trainer.fit                              Lightning's loop; one "batch" is one optimizer step
      speed.Timed -> build.Data.steps        reads the next `Step`: this rank's micro-batches
      Engine.training_step                   engine.py; calls the module without DDP's wrapper
        TrainingModule.training_step            this file
          _agreed_counts                     predictions and tokens of the global batch, on the host
          Engine.set_learning_rate           from Updates.learning_rate
          Objective.begin                    ELMo draws its negatives here
          for each micro-batch:
            Objective.losses                 summed losses of the micro-batch, not yet divided
              Engine.forward                 the DDP or DeepSpeed wrapper, if there is one
                TrainingModule.forward          autocast
                  BertForPretraining.forward, ElmoForPretraining.forward, or tasks' Model.forward
            Objective.mean                   divides by the counts of the global batch
            after the last forward pass only:
              Engine.all_reduce_sum_         summed losses, on the device
              guard.factor                   a bad loss makes the gradient NaN, on the device
            Engine.accumulate_gradients      backward; ranks exchange gradients in the last one
          Engine.update                      clips and steps, or skips a gradient that is not finite
          _agree                             counts of the next step, while the device still works
          Engine.read                        the only read of the device: losses, gradient norm
          _reason_to_skip                    guard.fault, by the values that were read
          Objective.end                      ELMo keeps or discards the new LSTM state
          _advance                           step, cursor and phase; counts skipped steps
      callbacks.EndOfStep.after_step         metrics, held-out evaluation, checkpoint, progress bar

Losses are divided by the number of predictions of the *global* batch, over all ranks and
micro-batches. Neither the number of ranks nor the micro-batch size therefore changes a gradient.
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from pytorch_lightning import LightningModule
from torch import Tensor, nn

from pipeline.data.cursor import Identity
from pipeline.data.loader import Step
from pipeline.models.objective import Objective, seed_of
from pipeline.models.row_gradients import RowGradients
from pipeline.models.sums import Sums
from pipeline.training import guard
from pipeline.training.checkpoint import TrainingState
from pipeline.training.config import TrainerConfig
from pipeline.training.engine import Engine
from pipeline.training.exits import Diverged, Dropped
from pipeline.training.schedule import Phase, phase_at
from pipeline.training.updates import Updates


@dataclass(frozen=True)
class Outcome:
    """Result of one optimizer step. Every rank has equal values."""

    sums: Sums  # over the global batch
    loss: float  # of the global batch
    lr: float
    gradient_norm: float  # before clipping; not finite if the step was dropped
    rejected: str | None  # the reason why the step changed no weight; None if it did
    phase: int
    rows: int  # in the global batch


class TrainingModule(LightningModule):
    """Lightning module that holds the network, its objective and the state of the run.

    `training_step` changes `state` in place. Callbacks read `state`, `outcome` and `stop_agreed`
    after each step.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        updates: Updates,
        trainer_config: TrainerConfig,
        state: TrainingState,
        phases: list[Phase],
        identities: list[Identity],
        stop_requested: Callable[[], bool],
        next_step: Callable[[], Step | None] = lambda: None,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.model = model
        # Recorded before ZeRO 3 partitions the parameters and leaves empty tensors.
        self.shapes = {name: part.shape for name, part in model.named_parameters()}
        self.objective = objective
        self.row_gradients: dict[str, RowGradients] = {}  # by parameter name; none by default
        self.updates = updates
        self.config = trainer_config
        self.phases, self.identities = phases, identities
        self.state = state
        self.outcome: Outcome | None = None
        self.stop_agreed = False  # True on every rank once any rank was asked to stop
        self.ended_early = False  # set on every rank by an evaluation that ends training
        self.compute_seconds = 0.0  # spent in forward, backward and update, for timing.jsonl
        self._stop_requested = stop_requested
        self._next_step = next_step  # the step after the current one, if it is loaded already
        self._agreed: tuple[Step, Sums] | None = None  # a coming step and its global counts
        self._started = 0.0

    @property
    def engine(self) -> Engine:
        return cast(Engine, self.trainer.strategy)

    def on_train_start(self) -> None:
        self._started = time.monotonic() - self.state.seconds

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.updates.make_optimizer(self.model)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, index: int) -> Any:
        return batch  # `training_step` moves one micro-batch at a time, to save memory

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
        """True once the budget is spent, or training has ended early."""
        if self.ended_early:
            return True
        if self.total_steps is not None:
            return self.state.step >= self.total_steps
        assert self.config.max_hours is not None
        return self.state.seconds >= self.config.max_hours * 3600

    def training_step(self, step: Step, index: int) -> None:
        """Take one optimizer step over the micro-batches of `step`; sets `outcome`.

        Collective: every rank must call it, with an equal number of micro-batches.
        Raises `Diverged` on every rank after too many consecutive dropped steps.
        """
        started = time.monotonic()
        engine, state, objective = self.engine, self.state, self.objective
        global_counts = self._agreed_counts(step)
        lr = self.updates.learning_rate(state.step, self._budget_spent())
        engine.set_learning_rate(lr)
        objective.begin(state.step, self.device)
        highest = guard.limit(state.recent_losses) if self.updates.refuses_spikes else math.inf
        local_losses: list[NamedTuple] = []
        for number, batch in enumerate(step.micro_batches):
            last = number == len(step.micro_batches) - 1
            # Dropout depends only on these counters, so a resumed run repeats it exactly.
            torch.manual_seed(seed_of(self.config.seed, state.step, number, engine.rank))
            losses = objective.losses(partial(engine.forward, last), batch.to(self.device))
            local_losses.append(losses)
            loss = objective.mean(losses, global_counts)
            if last:
                names = losses._fields
                totals = engine.all_reduce_sum_(_add_up(local_losses))
                loss = loss * guard.factor(self._loss_of(names, totals, global_counts), highest).to(
                    loss.dtype
                )
            engine.accumulate_gradients(loss)
        norm = engine.update(self.updates.clip)
        self._agree(self._next_step())
        *sums, norm_read = engine.read(torch.cat([totals, norm.to(totals).reshape(1)]))
        global_sums = global_counts + Sums(dict(zip(names, sums, strict=True)))
        global_loss = objective.loss(global_sums)
        rejected = self._reason_to_skip(global_loss, highest)
        if rejected is None and not math.isfinite(norm_read):
            rejected = "the gradient is not finite"
        objective.end(accepted=rejected is None)
        self.outcome = Outcome(
            global_sums, global_loss, lr, norm_read, rejected, state.cursor.phase, step.rows
        )
        self._advance(step, self.outcome)
        self.compute_seconds += time.monotonic() - started

    def _agreed_counts(self, step: Step) -> Sums:
        """Return the predictions and tokens of the step's global batch. Collective."""
        if self._agreed is None or self._agreed[0] is not step:
            self._agree(step)
        assert self._agreed is not None
        return self._agreed[1]

    def _agree(self, step: Step | None) -> None:
        """Sum the counts of a step over all ranks, on the host. Collective.

        The same all-reduce sets `state.seconds` on every rank to rank 0's clock, and `stop_agreed`
        if any rank was asked to stop. Without a step nothing is exchanged; all ranks see the same
        steps.
        """
        if step is None:
            return
        local = sum((self.objective.count(batch) for batch in step.micro_batches), Sums())
        names = local.by_name
        clock = time.monotonic() - self._started if self.engine.rank == 0 else 0.0
        values = [*names.values(), clock, float(self._stop_requested())]
        *totals, self.state.seconds, stops = self.engine.all_reduce_sum(values)
        self.stop_agreed = self.stop_agreed or stops > 0
        self._agreed = step, Sums(dict(zip(names, totals, strict=True)))

    def _loss_of(self, names: Sequence[str], totals: Tensor, counts: Sums) -> Tensor:
        """Return the loss of the global batch as a scalar on the device."""
        by_name = dict(zip(names, totals.unbind(), strict=True))
        return cast(Tensor, self.objective.loss(counts + Sums(cast(dict[str, float], by_name))))

    def _budget_spent(self) -> float:
        """Return the share of the budget, from 0 to 1, that is spent halfway through this step."""
        if self.total_steps is not None:
            return (self.state.step + 0.5) / self.total_steps
        assert self.config.max_hours is not None
        return self.state.seconds / (self.config.max_hours * 3600)

    def _reason_to_skip(self, loss: float, highest: float) -> str | None:
        """Return why a step with this loss must not change the weights, or None to accept it.

        An accepted loss is added to `state.recent_losses`.
        """
        reason = guard.fault(loss, highest)
        if reason is None:
            self.state.recent_losses = guard.remember(loss, self.state.recent_losses)
        return reason

    def _advance(self, step: Step, outcome: Outcome) -> None:
        """Move `state` past this step, and into the next phase where this one ends."""
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
        """Record that the step's rows changed no weight; raise `Diverged` if there are too many."""
        state = self.state
        state.cursor = state.cursor.skip(step.first_row, step.next_row)
        state.dropped_steps += 1
        if state.dropped_since is None:
            state.dropped_since = step.first_row
        if state.dropped_steps > guard.DROPPED_AT_MOST:
            span = (state.cursor.phase, state.dropped_since, step.next_row)
            raise Diverged(Dropped(*span, reason))


def _add_up(local_losses: list[NamedTuple]) -> Tensor:
    """Return each field summed over the micro-batches, in double precision, on the device."""
    totals = sum(torch.stack([loss.detach().float() for loss in part]) for part in local_losses)
    assert isinstance(totals, Tensor)
    return totals if totals.device.type == "mps" else totals.double()  # mps has no doubles
