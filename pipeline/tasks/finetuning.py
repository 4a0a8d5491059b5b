"""Fine-tuning: fits an encoder and a head to a task's examples and scores them on its test set.

A plain loop, no Lightning: its import alone would take longer than a run of the demo. The same
seed gives the same numbers.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
class Outcome:
    """A finished fine-tuning."""

    scores: dict[str, float]  # on the test set, by metric; of further files by metric and name
    predictions: list[Prediction]  # of the test examples, in order
    unlabelled: dict[str, list[Prediction]]  # of the files without labels, by name
    dev_scores: list[float]  # the task's metric on the development set after each epoch
    best_epoch: int  # the one that was kept, counted from 1
    steps: int
    cut: int  # inputs that were longer than finetune.max_seq_length
    weights: dict[str, Tensor] = field(default_factory=dict)  # what was trained, if it is kept
    mix: dict[str, Any] | None = None  # the learned weights of layers, where they were mixed


class Model(nn.Module):
    """An encoder with a head on it."""

    def __init__(self, encoder: Encoder, head: Head, frozen: bool) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.frozen = frozen
        encoder.requires_grad_(not frozen)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.head.output.weight.device

    def train(self, mode: bool = True) -> "Model":
        """Switch dropout on or off; a frozen encoder never has any."""
        super().train(mode)
        self.encoder.train(mode and not self.frozen)
        return self

    def forward(self, batch: InputBatch) -> Tensor:
        """The head's answers for a batch."""
        if self.head.reads_first:
            return self.head.answer(self.encoder.first_states(batch))
        answers: Tensor = self.head(self.encoder(batch), batch)
        return answers

    def trained_state(self) -> dict[str, Tensor]:
        """A copy of what fine-tuning changes."""
        learned = {n: value for n, value in self.named_parameters() if value.requires_grad}
        counted = dict(self.head.named_buffers(prefix="head"))
        return {name: value.detach().clone() for name, value in (learned | counted).items()}


def finetune(encoder: Encoder, splits: Splits, task: TaskConfig, config: FinetuneConfig) -> Outcome:
    """Fit to the training examples, keep the epoch best on the development set, score the test."""
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
        fit = _fit(model, train, dev, answers, task, config)

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
    """Scores and predictions of all that is to be scored or predicted, for an Outcome."""
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
    """What training leaves beside the weights."""

    answers: Answers  # tuned on the development set
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
) -> Fit:
    """Train and leave the best epoch's weights in the model."""
    total = math.ceil(len(train.counts) / config.batch_size) * config.epochs
    scores: list[float] = []
    best_epoch, best_state, best_answers = 0, model.trained_state(), answers
    with lazy_tables(model.encoder) as tables, progress(f"finetune {task.name}", total) as bar:
        optimizer = Optimizer(model.encoder, model.head, config, total, tables)
        for epoch in range(1, config.epochs + 1):
            model.train()
            rng = np.random.default_rng([config.seed, epoch])
            for rows in training_order(train.inputs.lengths, config.batch_size, rng):
                loss = train_step(model, train, rows, optimizer)
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
            if best_epoch == 0 or scores[-1] > scores[best_epoch - 1]:
                best_epoch, best_state, best_answers = epoch, model.trained_state(), tuned
            # F1 and correlations are 0 until a head begins to answer: no score to lose patience by.
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
    """One optimizer step of a model in training mode on the chosen inputs; the loss before it."""
    batch, gold_U = data.batch(rows)
    loss = model.head.loss(model(batch.to(model.device)), gold_U.to(model.device), batch)
    torch.autograd.backward(loss)
    optimizer.step()
    return loss.item()


@torch.inference_mode()
def head_outputs(model: Model, data: TaskData) -> Floats:
    """What the head says of all inputs, in their order: [U, C]."""
    model.eval()
    outputs = np.empty((len(data.gold), model.head.output.out_features), np.float32)
    for rows in evaluation_order(data.inputs.lengths):
        batch = data.inputs.batch(rows).to(model.device)
        answers_UC = model.head.decide(model(batch), batch).float().cpu().numpy()
        outputs[data.places(rows)] = answers_UC
    return outputs


def choose_device(accelerator: str) -> torch.device:
    """The device an accelerator's name stands for; `auto` takes the best there is."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if accelerator == "auto":
        return torch.device(next((name for name, usable in there.items() if usable), "cpu"))
    if not there.get(accelerator, True):
        raise UsageError(
            f"finetune.accelerator={accelerator}: this machine has none; choose auto or cpu"
        )
    return torch.device(accelerator)
