"""Fine-tuning: train an encoder and a head on a task's examples and score them on its test set.

Runs on one device in one process. The same seed gives the same numbers. It is a plain loop without
Lightning, because importing Lightning takes longer than fine-tuning in the demo.

Call chain: finetune -> _fit -> train_step (forward, loss, backward, optimizer) -> head_outputs.
Try it: sesame finetune encoder=mine task=sst2 task.data_dir=/data/glue/SST-2
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from data_prep.errors import SesameError, UsageError
from data_prep.progress import progress
from pipeline.encoders import Encoder
from pipeline.tasks.answers import Answers, Prediction
from pipeline.tasks.batches import TaskData, training_order
from pipeline.tasks.config import FinetuneConfig, TaskConfig
from pipeline.tasks.examples import Example
from pipeline.tasks.finetuned import Finetuned, build
from pipeline.tasks.kinds import make_answers
from pipeline.tasks.lazy_rows import lazy_tables
from pipeline.tasks.model import Model, head_outputs
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

    scores: dict[
        str, float
    ]  # by metric on the test set; by metric_name on the files of task.further_tests
    predictions: list[Prediction]  # one per test example, in order
    unlabelled: dict[str, list[Prediction]]  # for the files of task.unlabelled, by name
    dev_scores: list[float]  # the task's metric on the development set after each epoch
    best_epoch: int  # the epoch whose weights were used, counted from 1
    steps: int  # optimizer steps
    cut: int  # inputs truncated to finetune.max_seq_length
    mix: dict[str, Any] | None = None  # learned layer weights, with finetune.layers=mix


def finetune(
    encoder: Encoder,
    splits: Splits,
    task: TaskConfig,
    config: FinetuneConfig,
    after_epoch: AfterEpoch = lambda epoch: None,
    keep: Callable[[Finetuned], None] = lambda finetuned: None,
) -> Outcome:
    """Train, keep the epoch with the best development score, and score the test set.

    Calls `after_epoch` at the end of every epoch, and `keep` with the best epoch's model.

    Changes the encoder's weights in place unless finetune.mode=frozen. Raises a SesameError if the
    loss is not finite.
    """
    answers = make_answers(task, splits.labels, splits.train)
    device = choose_device(config.accelerator)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(config.seed)
        model = build(encoder, answers, task, config).model

        def encode(examples: Sequence[Example]) -> TaskData:
            return answers.encode(model.encoder, examples, config.max_seq_length)

        train, dev, test = encode(splits.train), encode(splits.dev), encode(splits.test)
        model.to(device)
        fit = _fit(model, train, dev, answers, task, config, after_epoch)
    keep(Finetuned(model, fit.answers, task, config))

    def predict(examples: Sequence[Example]) -> list[Prediction]:
        data = test if examples is splits.test else encode(examples)
        return fit.answers.decode(head_outputs(model, data), data)

    return Outcome(
        **scored(predict, fit.answers, splits),
        dev_scores=fit.dev_scores,
        best_epoch=fit.best_epoch,
        steps=fit.steps,
        cut=sum(part.inputs.cut for part in (train, dev, test)),
        mix=model.head.layers.learned(),
    )


def scored(
    predict: Callable[[Sequence[Example]], list[Prediction]], answers: Answers, splits: Splits
) -> dict[str, Any]:
    """Return the fields `scores`, `predictions` and `unlabelled` of an Outcome.

    `predict` returns one prediction per example.
    """
    predictions = predict(splits.test)
    scores = answers.score(splits.test, predictions)
    for name, examples in splits.further_tests.items():
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
    total = math.ceil(len(train.lengths) / config.batch_size) * config.epochs
    scores: list[float] = []
    best_epoch, best_state, best_answers = 0, model.trained_state(), answers
    with lazy_tables(model.encoder) as tables, progress(f"finetune {task.name}", total) as bar:
        optimizer = Optimizer(model.encoder, model.head, config, total, tables)
        for epoch in range(1, config.epochs + 1):
            model.train()
            losses = []
            rng = np.random.default_rng([config.seed, epoch])
            for rows in training_order(train.lengths, config.batch_size, rng):
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
    """Take one optimizer step on the bundles `rows`; return the loss before the step.

    The model must be in training mode. It is changed in place.
    """
    batch, gold_U = data.batch(rows)
    loss = model.head.loss(model(batch.to(model.device)), gold_U.to(model.device), batch)
    torch.autograd.backward(loss)
    optimizer.step()
    return loss.item()


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
