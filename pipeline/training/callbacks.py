"""Callbacks at the end of a step: metrics, held-out evaluation, checkpoints, progress, watchdog.

They run in this order, so that a checkpoint is saved after all metrics lines of its step.
"""

import faulthandler
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer

from data_prep.errors import SesameError
from data_prep.progress import Bar, progress
from pipeline.models.objective import Objective
from pipeline.models.sums import Sums
from pipeline.store.journal import Journal
from pipeline.training.checkpoint import TrainingState
from pipeline.training.saving import Saver
from pipeline.training.speed import Meter
from pipeline.training.train_step import Outcome, TrainingModule


class EndOfStep(Callback, ABC):
    """A callback that acts only after an optimizer step, on every rank."""

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, TrainingModule)
        self.after_step(pl_module)

    @abstractmethod
    def after_step(self, module: TrainingModule) -> None:
        """Called on every rank after each step, dropped steps included."""


class Metrics(EndOfStep):
    """Writes a line of metrics.jsonl and timing.jsonl every `every` steps, and a line of
    metrics.jsonl per dropped step."""

    def __init__(
        self,
        metrics: Journal,
        timing: Journal,
        meter: Meter,
        every: int,
        track: Callable[[dict[str, Any]], None],
    ) -> None:
        self._metrics, self._timing, self._meter = metrics, timing, meter
        self._every, self._track = every, track

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, TrainingModule)
        self._meter.start(pl_module)

    def after_step(self, module: TrainingModule) -> None:
        outcome, state = module.outcome, module.state
        assert outcome is not None
        self._meter.count(module)
        if outcome.rejected:
            self._write(self._metrics, module, {"step": state.step, "dropped": outcome.rejected})
        else:
            state.window += outcome.sums
        if state.step % self._every == 0 or module.finished:
            if state.window.tokens:
                self._write(self._metrics, module, metrics_line(state, outcome, module.objective))
            self._write(self._timing, module, self._meter.line(module))
            state.window = Sums()

    def _write(self, journal: Journal, module: TrainingModule, line: dict[str, Any]) -> None:
        if module.engine.rank == 0:
            journal.append(line)
            self._track(line)


def metrics_line(state: TrainingState, outcome: Outcome, objective: Objective) -> dict[str, Any]:
    """Return a line of metrics.jsonl: means since the last line, and the last step's learning rate
    and gradient norm."""
    return {
        "step": state.step,
        "position": state.cursor.position,
        **objective.metrics(state.window),
        "lr": outcome.lr,
        "gradient_norm": outcome.gradient_norm if math.isfinite(outcome.gradient_norm) else None,
        "tokens": state.tokens,
    }


NOT_FINITE = "the held-out loss is not finite"


class Evaluation(EndOfStep):
    """Evaluates on held-out rows every `every` steps and at the end.

    At the end the loss is also recorded for each source and language (`strata`).

    A held-out loss that is not finite is recorded as null, with the reason, and training continues:
    if the weights are bad, the next steps are dropped anyway. Two cases raise `SesameError` on
    every rank: after the last step, because the model would be unusable, and before the first step
    (`at_start`), because the model to start from already is.
    """

    def __init__(
        self,
        held_out: Callable[[int], Iterable[Any]],
        strata: Callable[[int], Mapping[str, Iterable[Any]]],
        every: int,
        at_start: bool,
        metrics: Journal,
        track: Callable[[dict[str, Any]], None],
        say: Callable[[str], None],
    ) -> None:
        self._held_out, self._strata = held_out, strata
        self._every, self._at_start = every, at_start
        self._metrics, self._track, self._say = metrics, track, say

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, TrainingModule)
        if self._at_start and pl_module.state.step == 0 and not self._evaluate(pl_module):
            raise SesameError(
                f"{NOT_FINITE} for the model that training would start from; choose another "
                "init.source, or try trainer.precision=fp32"
            )

    def after_step(self, module: TrainingModule) -> None:
        if module.state.step % self._every and not module.finished:
            return
        if not self._evaluate(module) and module.finished:
            raise SesameError(
                f"{NOT_FINITE} after the last step ({module.state.step:,}), so there is no usable "
                "model, and its checkpoint was not saved; try trainer.precision=fp32 or a lower "
                "optim.lr, or use an earlier checkpoint (<run>@<step>)"
            )

    def _evaluate(self, module: TrainingModule) -> bool:
        """Evaluate and record; return True on every rank if the loss is finite. Collective."""
        phase, step = module.state.cursor.phase, module.state.step
        means = evaluate(module, self._held_out(phase))
        is_finite = means["loss"] is not None and math.isfinite(means["loss"])
        if module.finished and is_finite:
            for name, batches in self._strata(phase).items():
                means[f"loss/{name}"] = evaluate(module, batches)["loss"]
        if module.engine.rank == 0:
            line = held_out_line(step, means, is_finite)
            self._metrics.append(line)
            self._track(line)
            if not is_finite:
                self._say(f"{NOT_FINITE} after step {step:,}; it is recorded as null")
        return is_finite


def held_out_line(step: int, means: dict[str, float | None], is_finite: bool) -> dict[str, Any]:
    """Return a line of metrics.jsonl; values that are not finite become null."""
    line: dict[str, Any] = {"step": step} | {
        f"heldout_{key}": value if value is not None and math.isfinite(value) else None
        for key, value in means.items()
    }
    return line if is_finite else line | {"evaluation_failed": NOT_FINITE}


@torch.no_grad()
def evaluate(module: TrainingModule, batches: Iterable[Any]) -> dict[str, float | None]:
    """Return means over the batches of all ranks.

    Collective: every rank must call it, with an equal number of batches.
    """
    engine, objective = module.engine, module.objective.for_evaluation(module.device)
    assert engine.model is not None
    sums = Sums()
    engine.model.eval()
    for batch in batches:
        losses = objective.losses(partial(engine.forward, True), batch.to(module.device))
        found = {name: part.item() for name, part in losses._asdict().items()}
        sums += objective.count(batch) + Sums(found)
    engine.model.train()
    totals = engine.all_reduce_sum(list(sums.by_name.values()))
    return objective.metrics(Sums(dict(zip(sums.by_name, totals, strict=True))))


class Checkpoints(EndOfStep):
    """Saves a checkpoint every `every` steps, at the end of training, and on a request to stop.

    Checkpoints are written behind training. In the last two cases, and after step `stop_at`,
    training waits for the checkpoint, and Lightning's loop ends. Raises `SesameError` if the last
    checkpoint could not be saved.
    """

    def __init__(
        self, saver: Saver, every: int, journals: list[Journal], stop_at: int | None = None
    ) -> None:
        self._saver, self._every, self._journals = saver, every, journals
        self._stop_at = stop_at

    def after_step(self, module: TrainingModule) -> None:
        self._saver.check()
        stopping = module.finished or module.stop_agreed or module.state.step == self._stop_at
        if stopping or module.state.step % self._every == 0:
            for journal in self._journals:
                journal.sync()
            self._saver.start(module.state, module.objective.carried)
        if stopping:
            saved = self._saver.wait()
            if module.finished and not saved:
                raise SesameError(
                    "training is done, but its last checkpoint could not be saved; make room on "
                    "the disk and run the same command again"
                )
            module.trainer.should_stop = True


class ProgressBar(EndOfStep):
    """Shows loss, speed and remaining time, on rank 0 only."""

    def __init__(self, title: str = "pretrain") -> None:
        self._title = title
        self._open = ExitStack()
        self._bar: Bar | None = None
        self._clock, self._tokens, self._loss = 0.0, 0, math.nan

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, TrainingModule)
        if pl_module.engine.rank == 0:
            state = pl_module.state
            hours = pl_module.config.max_hours or 0.0
            title, total, done = f"{self._title}, seconds", hours * 3600, state.seconds
            if pl_module.total_steps is not None:
                title, total = f"{self._title}, steps", pl_module.total_steps
                done = float(state.step)
            self._bar = self._open.enter_context(progress(title, total, done))
            self._clock, self._tokens, self._seconds = time.monotonic(), state.tokens, state.seconds

    def after_step(self, module: TrainingModule) -> None:
        if self._bar is None or module.outcome is None:
            return
        state, loss = module.state, module.outcome.loss
        smooth = loss if math.isnan(self._loss) else 0.98 * self._loss + 0.02 * loss
        self._loss = smooth if math.isfinite(loss) else self._loss
        speed = (state.tokens - self._tokens) / max(time.monotonic() - self._clock, 1e-9)
        self._bar.note(f"loss {self._loss:.3f}  {speed:,.0f} tokens/s")
        self._bar.advance(1 if module.total_steps else state.seconds - self._seconds)
        self._seconds = state.seconds

    def close(self) -> None:
        """Remove the bar from the terminal."""
        self._open.close()


class Watchdog(EndOfStep):
    """Ends this rank, and prints the stacks of all threads, if a step takes too long."""

    def __init__(self, minutes: float) -> None:
        self._seconds = minutes * 60

    def start(self) -> None:
        """Start or restart the timer. Called before the first step and after each step."""
        if self._seconds:
            faulthandler.dump_traceback_later(self._seconds, exit=True, file=2)

    def after_step(self, module: TrainingModule) -> None:
        self.start()

    def stop(self) -> None:
        """Cancel the timer."""
        faulthandler.cancel_dump_traceback_later()
