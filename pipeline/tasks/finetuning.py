"""Fine-tuning: train an encoder and a head on a task's examples and score them on its test set.

Runs on one device in one process. The same seed gives the same numbers. It is a plain loop without
Lightning, because importing Lightning takes longer than fine-tuning in the demo.

Call chain: finetune -> _fit -> train_step (forward, loss, backward, optimizer) -> head_outputs.
Try it: sesame finetune encoder=mine task=sst2 task.data_dir=/data/glue/SST-2
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from data_prep.errors import SesameError, UsageError
from data_prep.progress import progress
from pipeline.encoders import Encoder, InputBatch, SentencesApart, evaluation_order
from pipeline.tasks.answers import Answers, Floats, Prediction
from pipeline.tasks.batches import TaskData, training_order
from pipeline.tasks.config import FinetuneConfig, TaskConfig
from pipeline.tasks.examples import Example
from pipeline.tasks.heads import Head
from pipeline.tasks.kinds import make_answers
from pipeline.tasks.lazy_rows import lazy_tables
from pipeline.tasks.optimizer import Optimizer
from pipeline.tasks.splits import Splits


@dataclass(frozen=True)
class Epoch:
    """The end of one epoch."""

    number: int
    step: int  # optimizer steps so far
    loss: float  # mean over the steps of the epoch
    learning_rate: float
    score: float  # on the development set


AfterEpoch = Callable[[Epoch], None]


@dataclass(frozen=True)
class Outcome:
    """Scores, predictions and optional weights of a finished fine-tuning."""

    scores: dict[str, float]  # by metric on the test set; by metric_name on the files of task.also
    predictions: list[Prediction]  # one per test example, in order
    unlabelled: dict[str, list[Prediction]]  # for the files of task.unlabelled, by name
    dev_scores: list[float]  # the task's metric on the development set after each epoch
    best_epoch: int  # the epoch whose weights were used, counted from 1
    steps: int  # optimizer steps
    cut: int  # inputs truncated to finetune.max_seq_length
    weights: dict[str, Tensor] = field(default_factory=dict)  # with finetune.keep_model
    mix: dict[str, Any] | None = None  # learned layer weights, with finetune.layers=mix


class Model(nn.Module):
    """An encoder with a head. `frozen`: the encoder gets no gradients and no dropout."""

    def __init__(self, encoder: Encoder, head: Head, frozen: bool) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.frozen = frozen
        encoder.requires_grad_(not frozen)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.head.output.weight.device

    def train(self, mode: bool = True) -> "Model":
        """Set training mode; a frozen encoder always stays in evaluation mode."""
        super().train(mode)
        self.encoder.train(mode and not self.frozen)
        return self

    def forward(self, batch: InputBatch) -> Tensor:
        """Return the head's answers [U, C] for a batch (rows as in `heads`)."""
        if self.head.reads_first:
            return self.head.answer(self.encoder.first_states(batch))
        answers: Tensor = self.head(self.encoder(batch), batch)
        return answers

    def trained_state(self) -> dict[str, Tensor]:
        """Return a copy of all trained parameters and of the head's buffers."""
        learned = {n: value for n, value in self.named_parameters() if value.requires_grad}
        counted = dict(self.head.named_buffers(prefix="head"))
        return {name: value.detach().clone() for name, value in (learned | counted).items()}


def finetune(
    encoder: Encoder,
    splits: Splits,
    task: TaskConfig,
    config: FinetuneConfig,
    after_epoch: AfterEpoch = lambda epoch: None,
) -> Outcome:
    """Train, keep the epoch with the best development score, and score the test set.

    Calls `after_epoch` at the end of every epoch.

    Changes the encoder's weights in place unless finetune.mode=frozen. Raises a SesameError if the
    loss is not finite.
    """
    answers = make_answers(task, splits.labels, splits.train)
    has_pairs = task.text_b is not None
    if has_pairs and config.pairs == "apart" and encoder.joins_pairs:
        encoder = SentencesApart(encoder)

    def encode(examples: Sequence[Example]) -> TaskData:
        return answers.encode(encoder, examples, config.max_seq_length)

    train, dev, test = encode(splits.train), encode(splits.dev), encode(splits.test)
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        apart = has_pairs and not encoder.joins_pairs
        head = Head(task.kind, answers.outputs, encoder, config, apart)
        model = Model(encoder, head, config.mode == "frozen")
        model.to(choose_device(config.accelerator))
        fit = _fit(model, train, dev, answers, task, config, after_epoch)

    def predict(examples: Sequence[Example]) -> list[Prediction]:
        data = test if examples is splits.test else encode(examples)
        return fit.answers.decode(head_outputs(model, data), data)

    return Outcome(
        **scored(predict, fit.answers, splits),
        dev_scores=fit.dev_scores,
        best_epoch=fit.best_epoch,
        steps=fit.steps,
        cut=sum(part.inputs.cut for part in (train, dev, test)),
        weights=model.trained_state() if config.keep_model else {},
        mix=head.layers.learned(),
    )


def scored(
    predict: Callable[[Sequence[Example]], list[Prediction]], answers: Answers, splits: Splits
) -> dict[str, Any]:
    """Return the fields `scores`, `predictions` and `unlabelled` of an Outcome.

    `predict` returns one prediction per example.
    """
    predictions = predict(splits.test)
    scores = answers.score(splits.test, predictions)
    for name, examples in splits.also.items():
        more = answers.score(examples, predict(examples))
        scores |= {f"{metric}_{name}": value for metric, value in more.items()}
    return {
        "scores": scores,
        "predictions": predictions,
        "unlabelled": {name: predict(examples) for name, examples in splits.unlabelled.items()},
    }


@dataclass(frozen=True)
class Fit:
    """Results of training besides the weights."""

    answers: Answers  # with the decision threshold of the best epoch, see Answers.tuned
    dev_scores: list[float]
    best_epoch: int
    steps: int


def _fit(
    model: Model,
    train: TaskData,
    dev: TaskData,
    answers: Answers,
    task: TaskConfig,
    config: FinetuneConfig,
    after_epoch: AfterEpoch,
) -> Fit:
    """Train the model in place; at the end it holds the best epoch's weights."""
    total = math.ceil(len(train.counts) / config.batch_size) * config.epochs
    scores: list[float] = []
    best_epoch, best_state, best_answers = 0, model.trained_state(), answers
    with lazy_tables(model.encoder) as tables, progress(f"finetune {task.name}", total) as bar:
        optimizer = Optimizer(model.encoder, model.head, config, total, tables)
        for epoch in range(1, config.epochs + 1):
            model.train()
            losses = []
            rng = np.random.default_rng([config.seed, epoch])
            for rows in training_order(train.inputs.lengths, config.batch_size, rng):
                loss = train_step(model, train, rows, optimizer)
                losses.append(loss)
                if not math.isfinite(loss):
                    raise SesameError(
                        f"the loss is {loss} at step {optimizer.steps - 1} of {total}; "
                        f"lower finetune.lr={config.lr:g}"
                    )
                bar.advance()
            outputs = head_outputs(model, dev)
            tuned = answers.tuned(outputs, dev)
            dev_scores = tuned.score(dev.examples, tuned.decode(outputs, dev))
            scores.append(dev_scores[task.metric])
            bar.note(f"{task.metric} {scores[-1]:.3f}")
            mean = fmean(losses)
            after_epoch(Epoch(epoch, optimizer.steps, mean, optimizer.rate, scores[-1]))
            if best_epoch == 0 or scores[-1] > scores[best_epoch - 1]:
                best_epoch, best_state, best_answers = epoch, model.trained_state(), tuned
            # F1 and correlation stay 0 while the head predicts a constant; do not stop there.
            elif (
                config.patience is not None
                and epoch - best_epoch >= config.patience
                and scores[best_epoch - 1] > 0
            ):
                break
    model.load_state_dict(best_state, strict=False)
    return Fit(best_answers, scores, best_epoch, optimizer.steps)


def train_step(
    model: Model, data: TaskData, rows: NDArray[np.int64], optimizer: Optimizer
) -> float:
    """Take one optimizer step on the inputs `rows`; return the loss before the step.

    The model must be in training mode. It is changed in place.
    """
    batch, gold_U = data.batch(rows)
    loss = model.head.loss(model(batch.to(model.device)), gold_U.to(model.device), batch)
    torch.autograd.backward(loss)
    optimizer.step()
    return loss.item()


@torch.inference_mode()
def head_outputs(model: Model, data: TaskData) -> Floats:
    """Return the head's answers for all inputs, in their order: [U, C].

    Puts the model into evaluation mode.
    """
    model.eval()
    outputs = np.empty((len(data.gold), model.head.output.out_features), np.float32)
    for rows in evaluation_order(data.inputs.lengths):
        batch = data.inputs.batch(rows).to(model.device)
        answers_UC = model.head.decide(model(batch), batch).float().cpu().numpy()
        outputs[data.places(rows)] = answers_UC
    return outputs


def choose_device(accelerator: str) -> torch.device:
    """Return the device for finetune.accelerator; `auto` prefers cuda, then mps, then cpu."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if accelerator == "auto":
        return torch.device(next((name for name, usable in there.items() if usable), "cpu"))
    if not there.get(accelerator, True):
        raise UsageError(
            f"finetune.accelerator={accelerator}: not available on this machine; use auto or cpu"
        )
    return torch.device(accelerator)
