"""Fine-tuning on pretraining's engine: the part of one rank.

The step, precision, micro-batches, checkpoints and guards are those of `pipeline.training`; this
file adds the task's data, objective, optimizer settings and evaluation. A batch is divided among
ranks and micro-batches by bundles, and losses are divided by the weight of the whole batch. So
neither the number of devices nor the micro-batch size changes a gradient.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from pytorch_lightning import LightningModule, Trainer
from torch import Tensor, nn
from torch.optim import AdamW

from data_prep.errors import SesameError
from pipeline.data.cursor import Cursor, check
from pipeline.data.loader import Step
from pipeline.encoders import InputBatch, evaluation_order
from pipeline.models.objective import Forward, Objective
from pipeline.models.sums import Sums
from pipeline.store.checkpoints import CHECKPOINTS
from pipeline.store.journal import Journal, read_lines
from pipeline.tasks.answers import Answers, Floats
from pipeline.tasks.batches import Ints, TaskData
from pipeline.tasks.config import FinetuneConfig
from pipeline.tasks.history import COUNTED, LOSS, History, journal_line
from pipeline.tasks.model import Model
from pipeline.tasks.optimizer import learning_rate, parameter_groups, shown_peak
from pipeline.tasks.plain_loop import KEEP, TrainingFiles
from pipeline.tasks.training_plan import TrainingPlan
from pipeline.training.build import Run, Start
from pipeline.training.callbacks import EndOfStep, ProgressBar, Watchdog
from pipeline.training.checkpoint import TrainingState, read_state
from pipeline.training.config import TrainerConfig
from pipeline.training.saving import Saver
from pipeline.training.schedule import Phase
from pipeline.training.speed import Timed
from pipeline.training.strategy import make_engine
from pipeline.training.train_step import TrainingModule


@dataclass(frozen=True)
class TaskBatch:
    """Inputs with targets. One of weight 0 is not counted: a rank with an empty share computes it
    because all ranks must make equally many passes."""

    inputs: InputBatch
    gold_U: Tensor
    weight: float  # of its losses, see `Head.loss_weight`; 0: not counted

    def to(self, device: torch.device) -> "TaskBatch":
        """Return the batch on a device."""
        return replace(self, inputs=self.inputs.to(device), gold_U=self.gold_U.to(device))


class TaskLoss(NamedTuple):
    """The summed loss of a micro-batch."""

    loss_sum: Tensor


class TaskObjective(Objective):
    """The loss of a task's head."""

    def losses(self, forward: Forward, batch: TaskBatch) -> TaskLoss:
        is_counted = batch.weight > 0
        loss: Tensor = forward(batch.inputs, batch.gold_U, is_counted)
        return TaskLoss(loss if is_counted else 0.0 * loss)

    def count(self, batch: TaskBatch) -> Sums:
        tokens = len(batch.inputs.tokens_N) if batch.weight else 0
        return Sums({COUNTED: batch.weight, "tokens": tokens})

    def mean(self, losses: TaskLoss, asked: Sums) -> Tensor:
        return losses.loss_sum / asked[COUNTED]

    def loss(self, sums: Sums) -> float:
        return sums[LOSS] / sums[COUNTED]

    def metrics(self, sums: Sums) -> dict[str, float | None]:
        return {"loss": sums.mean(LOSS, COUNTED)}


class TaskUpdates:
    """AdamW with the learning rates of fine-tuning; see `parameter_groups`."""

    refuses_spikes = False  # labels are few and noisy: a high loss is no fault

    def __init__(self, config: FinetuneConfig, total: int) -> None:
        self._config, self._total = config, total
        self._peak = shown_peak(config)
        self.clip = config.clip

    def make_optimizer(self, network: nn.Module) -> AdamW:
        assert isinstance(network, Model)
        groups = [
            {
                "params": group.values,
                "weight_decay": group.decay,
                "rate": group.peak / (self._peak or 1.0),
            }
            for group in parameter_groups(network.encoder, network.head, self._config)
        ]
        return AdamW(groups, lr=0.0, fused=True)

    def learning_rate(self, step: int, spent: float) -> float:
        config = self._config
        return self._peak * learning_rate(step, self._total, config.warmup, config.schedule)


@dataclass(frozen=True)
class RankSteps:
    """The steps of one rank."""

    model: Model
    train: TaskData
    plan: TrainingPlan
    rank: int
    ranks: int
    micro_batch_size: int | None

    def from_step(self, first: int) -> Iterator[Step]:
        """Yield all steps from number `first` on."""
        for step in range(first, self.plan.total):
            bundles = self.plan.bundles(step)
            yield Step(
                step=step,
                first_row=self.plan.position(step),
                next_row=self.plan.position(step + 1),
                rows=len(bundles),
                micro_batches=[
                    self._batch(part, bundles)
                    for part in divide(bundles, self.rank, self.ranks, self.micro_batch_size)
                ],
            )

    def _batch(self, part: Ints, bundles: Ints) -> TaskBatch:
        inputs, gold_U = self.train.batch(part if len(part) else bundles[-1:])
        weight = self.model.head.loss_weight(gold_U, inputs) if len(part) else 0.0
        return TaskBatch(inputs, gold_U, weight)


def divide(bundles: Ints, rank: int, ranks: int, size: int | None) -> list[Ints]:
    """Return a rank's micro-batches of at most `size` bundles: equally many on every rank.

    Some may be empty. Every bundle belongs to exactly one micro-batch of one rank.
    """
    most = math.ceil(len(bundles) / ranks)
    count = math.ceil(most / (size or most))
    return [part.astype(np.int64) for part in np.array_split(bundles[rank::ranks], count)]


def freeze_unused(model: Model, batch: InputBatch, gold_U: Tensor) -> None:
    """Exclude parameters without a gradient from training, such as layers above the one that is
    read: ranks would wait for their gradients. Puts the model into training mode."""
    model.eval()  # so that no running moment changes
    torch.autograd.backward(model(batch, gold_U))
    for value in model.parameters():
        if value.grad is None:
            value.requires_grad_(False)
        value.grad = None
    model.train()


@dataclass(frozen=True)
class Material:
    """The model, its training and development examples, and how its answers are scored."""

    model: Model
    train: TaskData
    dev: TaskData
    answers: Answers
    metric: str


class Evaluating(EndOfStep):
    """Writes the journal, evaluates, and saves checkpoints.

    A checkpoint is saved at every best evaluation, every `minutes`, at the end and on a request to
    stop. The last two are kept, and the best one. `alive` is called before whatever may take long,
    so that a watchdog does not take a large development set for a step that hangs.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        material: Material,
        history: History,
        saver: Saver,
        journal: Journal,
        minutes: float,
        track: Callable[[dict[str, Any]], None],
        alive: Callable[[], None],
    ) -> None:
        self._alive = alive
        self._plan, self._history = plan, history
        self._dev, self._answers = material.dev, material.answers
        self._saver, self._journal, self._track = saver, journal, track
        self._seconds, self._saved_at = 60 * minutes, 0.0
        self._best_in_flight: int | None = None  # step of the best weights that are being saved

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, TrainingModule)
        self._saved_at = pl_module.state.seconds

    def after_step(self, module: TrainingModule) -> None:
        state, outcome = module.state, module.outcome
        assert outcome is not None
        if outcome.rejected is None:
            state.window += outcome.sums
        is_best = False
        if self._plan.is_logged(state.step):
            epoch = self._plan.epoch(state.step)
            line = journal_line(state.step, epoch, state.window, outcome.lr, outcome.gradient_norm)
            state.window = Sums()
            if self._plan.is_evaluated(state.step):
                score = self._score(module)
                is_best = self._history.add(state.step, epoch, score)
                module.ended_early = self._history.ends_early
                line[self._history.key] = score
            if module.engine.rank == 0:
                self._journal.append(line)
                self._track(line)
        self._save(module, is_best)

    def _save(self, module: TrainingModule, is_best: bool) -> None:
        self._saver.check()
        seconds = module.state.seconds  # rank 0's clock on every rank: all decide alike
        is_ending = module.finished or module.stop_agreed
        if is_best or is_ending or seconds - self._saved_at >= self._seconds:
            self._journal.sync()
            self._wait()
            self._saver.start(module.state)
            self._saved_at = seconds
            self._best_in_flight = module.state.step if is_best else None
        if is_ending:
            self._wait()
            module.trainer.should_stop = True

    def _wait(self) -> None:
        """Wait for the last checkpoint. Raises a SesameError if the best weights were not saved."""
        self._alive()
        if not self._saver.wait() and self._best_in_flight is not None:
            raise SesameError(
                f"the best weights so far (step {self._best_in_flight:,}) could not be saved; make "
                "room on the disk and run the same command again: it goes on from the last "
                "checkpoint"
            )

    @torch.no_grad()
    def _score(self, module: TrainingModule) -> float:
        """Return the score on the development set; ranks share its batches. Collective."""
        engine, dev, model = module.engine, self._dev, module.model
        assert isinstance(model, Model) and engine.model is not None
        engine.model.eval()
        order = list(evaluation_order(dev.inputs.lengths))
        own: list[tuple[Ints, Floats]] = []
        # Every rank makes equally many forward passes; a surplus one repeats the first batch.
        for number in range(engine.rank, math.ceil(len(order) / engine.ranks) * engine.ranks,
                            engine.ranks):  # fmt: skip
            self._alive()
            rows = order[number % len(order)]
            batch = dev.inputs.batch(rows).to(module.device)
            answers_UC = model.head.decide(engine.forward(True, batch).float(), batch)
            own.append((dev.places(rows), answers_UC.cpu().numpy()))
        engine.model.train()
        outputs = np.empty((len(dev.gold), model.head.columns), np.float32)
        for of_rank in engine.gather_on_host(own):
            for places, answers in of_rank:
                outputs[places] = answers
        self._alive()
        tuned = self._answers.tuned(outputs, dev)
        scores = tuned.score(dev.examples, tuned.decode(outputs, dev))
        return scores[self._history.metric]


@dataclass(frozen=True)
class Launch:
    """One launch of a rank."""

    rank: int
    accelerator: str
    files: TrainingFiles
    checkpoint: Path | None  # to resume from
    fence: Callable[[], None]  # raises if a later launch has taken over
    stop_requested: Callable[[], bool]
    track: Callable[[dict[str, Any]], None]
    say: Callable[[str], None]


def assemble(
    material: Material, config: FinetuneConfig, trainer: TrainerConfig, launch: Launch
) -> Run:
    """Build the run of one rank. Every rank must call it with equal arguments but `launch.rank`."""
    model, train, folder = material.model, material.train, launch.files.folder
    plan = TrainingPlan(train, config)
    state = TrainingState(Cursor(0, 0, (), plan.identity()))
    history = History(material.metric, config.patience)
    journal = Journal(launch.files.journal, launch.fence)
    if launch.checkpoint is not None:
        identity, state = state.cursor.identity, read_state(launch.checkpoint)
        check(state.cursor, identity, str(launch.checkpoint))
        history.read(read_lines(launch.files.journal), state.step)
    if config.activation_checkpointing:
        model.encoder.recompute_activations()
    freeze_unused(model, *train.batch(plan.bundles(0)[-1:]))
    own = RankSteps(model, train, plan, launch.rank, trainer.world_size, config.micro_batch_size)
    steps = Timed(own.from_step(state.step))
    module = TrainingModule(
        model, TaskObjective(), TaskUpdates(config, plan.total), trainer, state,
        [Phase(0, 0, plan.total)], [state.cursor.identity], launch.stop_requested, steps.next_step,
    )  # fmt: skip
    module.ended_early = history.ends_early
    timeout = timedelta(minutes=trainer.timeout_minutes + 1)
    engine = make_engine(trainer.strategy, launch.accelerator, config.clip, timeout)

    def best_to_keep() -> int | None:
        # The best one may be the newest, which is kept. If that is damaged, an earlier is needed.
        best = history.best_before(module.state.step)
        return best.step if best else None

    saver = Saver(
        folder / CHECKPOINTS, engine, keep=KEEP, keep_every=None, fence=launch.fence,
        say=launch.say, best=best_to_keep,
    )  # fmt: skip
    bar, watchdog = ProgressBar("finetune"), Watchdog(trainer.timeout_minutes)

    def close() -> None:
        bar.close()
        saver.close()
        watchdog.stop()

    callbacks = [
        Start(launch.checkpoint, Journal(folder / "launches.jsonl", launch.fence)),
        Evaluating(
            plan,
            material,
            history,
            saver,
            journal,
            config.checkpoint_minutes,
            launch.track,
            watchdog.start,
        ),
        bar,
        watchdog,
    ]
    return Run(module, engine, steps, callbacks, watchdog, close)
