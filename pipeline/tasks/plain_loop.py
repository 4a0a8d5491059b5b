"""Fine-tuning in this process, on one device, in fp32.

It starts at once: importing Lightning takes longer than a small fine-tuning on a CPU. Steps,
dropout, journal and checkpoints are those of training on ranks (`rank_training`): both give the
same model up to rounding. A checkpoint is saved every `finetune.checkpoint_minutes` and on a
request to stop. A resumed training is bit-equal to an uninterrupted one.

Call chain: PlainLoop.fit -> _Training.run -> train_step (forward, loss, backward, optimizer).
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from data_prep.errors import SesameError
from data_prep.progress import Bar, console, progress
from pipeline.data.cursor import Cursor, check
from pipeline.models.objective import seed_of
from pipeline.models.sums import Sums
from pipeline.models.untrusted import read_safetensors
from pipeline.store.checkpoints import CHECKPOINTS
from pipeline.store.journal import Journal, read_lines
from pipeline.tasks.answers import Answers
from pipeline.tasks.batches import Ints, TaskData
from pipeline.tasks.config import FinetuneConfig, TaskConfig
from pipeline.tasks.device import choose_device
from pipeline.tasks.encoded import EncodedSplits
from pipeline.tasks.history import (
    COUNTED,
    LOSS,
    Follower,
    History,
    NullFollower,
    Trained,
    journal_line,
)
from pipeline.tasks.lazy_rows import lazy_tables
from pipeline.tasks.model import Model, development_score
from pipeline.tasks.optimizer import Optimizer
from pipeline.tasks.training_plan import TrainingPlan
from pipeline.training import guard
from pipeline.training.checkpoint import TrainingState, newest_good, read_state
from pipeline.training.exits import Interrupted
from pipeline.training.host_group import HostGroup
from pipeline.training.parameter_state import ParameterState, to_host
from pipeline.training.restoring import SavedParameters
from pipeline.training.saving import Saver
from pipeline.training.stopping import StopRequest

KEEP = 2  # newest checkpoints; if the last is damaged, training goes on from the one before
WORTH_SAVING = 60.0  # seconds of training that are not to be done twice
BEST = "best"  # file of a checkpoint with the weights of the best evaluation


@dataclass(frozen=True)
class TrainingFiles:
    """Where a fine-tuning keeps its progress, so that it can go on after a kill."""

    folder: Path  # of checkpoints; removed when the output is finished
    journal: Path


class PlainLoop:
    """Trains a model in this process. Without `files` nothing is kept on disk."""

    def __init__(
        self,
        task: TaskConfig,
        config: FinetuneConfig,
        follower: Follower | None = None,
        files: TrainingFiles | None = None,
    ) -> None:
        self._task, self._config, self._files = task, config, files
        self._follower: Follower = follower or NullFollower()

    def fit(self, model: Model, data: EncodedSplits, answers: Answers) -> Trained:
        """Train the model in place; at the end it has the best evaluation's weights.

        Raises `Interrupted` after a request to stop, and a SesameError if the loss is not finite.
        """
        config = self._config
        train, dev = data.training()
        device = choose_device(config.accelerator)
        model.to(device)
        plan = TrainingPlan(train, config)
        history = History(self._task.metric, config.patience)
        stop = StopRequest()
        with (
            torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
            lazy_tables(model.encoder) as tables,
            stop.listening(),
        ):
            optimizer = Optimizer(model.encoder, model.head, config, plan.total, tables)
            training = _Training(model, optimizer, plan, history, config, self._files)
            training.resume()
            title = f"finetune {self._task.name}"
            with progress(title, plan.total, training.state.step) as bar:
                training.run(train, dev, answers, self._follower, stop, bar)
            model.eval()  # brings lazy tables up to date before they are replaced
        model.load_state_dict(training.best_weights, strict=False)
        return Trained(history, data.cut_in_training)


class _Training:
    """The state of a training in progress."""

    def __init__(
        self,
        model: Model,
        optimizer: Optimizer,
        plan: TrainingPlan,
        history: History,
        config: FinetuneConfig,
        files: TrainingFiles | None,
    ) -> None:
        self._model, self._optimizer, self._plan = model, optimizer, plan
        self._history, self._config, self._files = history, config, files
        self.state = TrainingState(Cursor(0, 0, (), plan.identity()))
        self.best_weights: dict[str, Tensor] = {}
        self._saver = self._make_saver()
        self._saved_at = time.monotonic()

    def _make_saver(self) -> Saver | None:
        if self._files is None:
            return None
        return Saver(
            self._files.folder / CHECKPOINTS, _OneProcess(self._model, self._optimizer),
            keep=KEEP, keep_every=None, fence=lambda: None, say=_say,
        )  # fmt: skip

    def resume(self) -> None:
        """Load the newest checkpoint, if there is one."""
        if self._files is None:
            return
        checkpoint = newest_good(self._files.folder / CHECKPOINTS, _say)
        Journal(self._files.journal, lambda: None).cut(int(checkpoint.name) if checkpoint else 0)
        if checkpoint is None:
            return
        identity = self.state.cursor.identity
        self.state = read_state(checkpoint)
        check(self.state.cursor, identity, str(checkpoint))
        restore(self._model, self._optimizer, checkpoint)
        self._history.read(read_lines(self._files.journal), self.state.step)
        for path in checkpoint.glob(f"{BEST}-*.safetensors"):
            self.best_weights = {
                name: value.to(self._model.device) for name, value in read_safetensors(path).items()
            }
        _say(f"goes on from step {self.state.step:,} of {self._plan.total:,}")

    def run(
        self,
        train: TaskData,
        dev: TaskData,
        answers: Answers,
        follower: Follower,
        stop: StopRequest,
        bar: Bar,
    ) -> None:
        """Take all remaining steps, evaluate, write the journal and save checkpoints."""
        state, plan = self.state, self._plan
        while state.step < plan.total and not self._history.ends_early:
            norm = self._take_step(train)
            bar.advance()
            if plan.is_logged(state.step):
                line = journal_line(
                    state.step, plan.epoch(state.step), state.window,
                    self._optimizer.rate(state.step - 1), norm,
                )  # fmt: skip
                state.window = Sums()
                if plan.is_evaluated(state.step):
                    score = self._evaluate(dev, answers)
                    bar.note(f"{self._history.metric} {score:.3f}")
                    follower.write(line | {self._history.key: score})
                    follower.evaluated(self._history.evaluations[-1])
                else:
                    follower.write(line)
            self._save_if_due(stop)
        if self._saver is not None:
            # The test set is scored next, and a stop meanwhile must not lose the last steps.
            if time.monotonic() - self._saved_at >= WORTH_SAVING:
                self._save(self._saver)
            self._saver.close()

    def _take_step(self, train: TaskData) -> float:
        """Take one step; return the gradient's norm. A loss that is not finite changes nothing."""
        state, plan = self.state, self._plan
        # Dropout depends only on these counters, so a resumed run repeats it exactly.
        torch.manual_seed(seed_of(self._config.seed, state.step, 0, 0))
        bundles = plan.bundles(state.step)
        self._model.train()
        loss, weight, norm = train_step(self._model, train, bundles, self._optimizer, state.step)
        state.step += 1
        state.cursor = replace(state.cursor, position=plan.position(state.step))
        if math.isfinite(loss) and math.isfinite(norm):
            state.updates += 1
            state.dropped_steps = 0
            state.window += Sums({LOSS: loss * weight, COUNTED: weight})
            return norm
        state.dropped_steps += 1
        if state.dropped_steps > guard.DROPPED_AT_MOST:
            raise diverged(state.step, plan.total, self._config)
        return norm

    def _evaluate(self, dev: TaskData, answers: Answers) -> float:
        score = development_score(self._model, dev, answers, self._history.metric)
        if self._history.add(self.state.step, self._plan.epoch(self.state.step), score):
            self.best_weights = self._model.trained_state()
        return score

    def _save_if_due(self, stop: StopRequest) -> None:
        """Save a checkpoint after `finetune.checkpoint_minutes`, and on a request to stop.

        Raises `Interrupted` once that is saved.
        """
        if self._saver is None:
            if stop.came:
                raise Interrupted("interrupted; nothing of this fine-tuning was kept")
            return
        is_due = time.monotonic() - self._saved_at >= 60 * self._config.checkpoint_minutes
        if is_due or stop.came:
            self._save(self._saver)
        if stop.came:
            self._saver.wait()
            self._saver.close()
            raise Interrupted(
                f"interrupted at step {self.state.step} of {self._plan.total}; "
                "run the same command to go on"
            )

    def _save(self, saver: Saver) -> None:
        best = {BEST: self.best_weights} if self.best_weights else {}
        assert self._files is not None
        Journal(self._files.journal, lambda: None).sync()
        saver.start(self.state, extra=best)
        self._saved_at = time.monotonic()


def train_step(
    model: Model, data: TaskData, bundles: Ints, optimizer: Optimizer, step: int
) -> tuple[float, float, float]:
    """Take optimizer step number `step` (from 0); return loss, its weight and the gradient's norm.

    The model must be in training mode. It is changed in place, unless loss or gradient is not
    finite.
    """
    batch, gold_U = data.batch(bundles)
    weight = model.head.loss_weight(gold_U, batch)
    loss = model(batch.to(model.device), gold_U.to(model.device)) / weight
    value: float = loss.item()
    if not math.isfinite(value):
        return value, weight, math.inf
    torch.autograd.backward(loss)
    return value, weight, optimizer.step(step)


def diverged(step: int, total: int, config: FinetuneConfig) -> SesameError:
    """Return the error after too many dropped steps."""
    return SesameError(
        f"the loss or its gradient is not finite at step {step} of {total}, and in the "
        f"{guard.DROPPED_AT_MOST} steps before; lower finetune.lr={config.lr:g}"
    )


class _OneProcess:
    """Gives `Saver` the state of a model in this process."""

    rank, ranks = 0, 1

    def __init__(self, model: Model, optimizer: Optimizer) -> None:
        self._model, self._optimizer = model, optimizer

    def make_host_group(self) -> HostGroup:
        """Return a group of this process alone."""
        return HostGroup(1, None)

    def state(self) -> Iterator[ParameterState]:
        """Yield copies of all parameters that training changes, and of the optimizer's state."""
        for name, value in saved_parameters(self._model):
            moments = self._optimizer.moments(value)
            copies = {key: to_host(moment) for key, moment in moments.items()}
            yield ParameterState(name, to_host(value), copies)


def saved_parameters(model: Model) -> list[tuple[str, torch.nn.Parameter]]:
    """Return the parameters that training changes: trained ones, and the head's moments."""
    return [
        (name, value)
        for name, value in model.named_parameters()
        if value.requires_grad or name.startswith("head.")
    ]


@torch.no_grad()
def restore(model: Model, optimizer: Optimizer, checkpoint: Path) -> None:
    """Load the weights and the optimizer's state of a checkpoint, in place."""
    values = dict(saved_parameters(model))
    saved = SavedParameters(checkpoint, {name: value.shape for name, value in values.items()})
    for name, value in values.items():
        value.copy_(saved.whole(name))
        optimizer.restore(value, {key: saved.whole(f"{key}/{name}") for key in saved.moments(name)})


def _say(text: str) -> None:
    console.print(f"finetune: {text}", markup=False)
