"""Fine-tuning: fits an encoder and a head to a task's examples and scores them on its test set.

A plain loop, no Lightning: its import alone would take longer than a run of the demo. The same
seed gives the same numbers.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from data_prep.errors import SesameError, UsageError
from data_prep.progress import progress
from pipeline.encoders import Encoder, InputBatch
from pipeline.tasks.answers import Answers, Prediction
from pipeline.tasks.batches import TaskData, encode_examples, evaluation_order, training_order
from pipeline.tasks.config import FinetuneConfig, TaskConfig
from pipeline.tasks.heads import Head
from pipeline.tasks.metrics import score
from pipeline.tasks.splits import Splits


@dataclass(frozen=True)
class Outcome:
    """A finished fine-tuning."""

    scores: dict[str, float]  # on the test set, by metric
    predictions: list[Prediction]  # of the test examples, in order
    dev_scores: list[float]  # the task's metric on the development set after each epoch
    best_epoch: int  # the one that was kept, counted from 1
    steps: int
    cut: int  # inputs that were longer than finetune.max_seq_length
    mix: dict[str, Any] | None  # the learned weights of layers, where they were mixed


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
        answers: Tensor = self.head(self.encoder(batch), batch)
        return answers

    def trained_state(self) -> dict[str, Tensor]:
        """A copy of what fine-tuning changes."""
        return {
            name: value.detach().clone()
            for name, value in self.named_parameters()
            if value.requires_grad
        }


def finetune(encoder: Encoder, splits: Splits, task: TaskConfig, config: FinetuneConfig) -> Outcome:
    """Fit to the training examples, keep the epoch best on the development set, score the test."""
    answers = Answers(task.kind, splits.labels, splits.train)
    train, dev, test = (
        encode_examples(encoder, part, answers, config.max_seq_length)
        for part in (splits.train, splits.dev, splits.test)
    )
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        head = Head(task.kind, answers.outputs, encoder.states, encoder.hidden, config)
        model = Model(encoder, head, config.mode == "frozen")
        model.to(choose_device(config.accelerator))
        dev_scores, best_epoch, steps = _fit(model, train, dev, answers, task, config)
    predictions = predict(model, test, answers)
    return Outcome(
        scores=evaluate(test, predictions, answers),
        predictions=predictions,
        dev_scores=dev_scores,
        best_epoch=best_epoch,
        steps=steps,
        cut=sum(part.inputs.cut for part in (train, dev, test)),
        mix=head.layers.learned(),
    )


def _fit(
    model: Model,
    train: TaskData,
    dev: TaskData,
    answers: Answers,
    task: TaskConfig,
    config: FinetuneConfig,
) -> tuple[list[float], int, int]:
    """Train and leave the best epoch's weights in the model; scores by epoch, that epoch, steps."""
    total = math.ceil(len(train.examples) / config.batch_size) * config.epochs
    optimizer = _optimizer(model, config)
    schedule = LambdaLR(optimizer, lambda step: learning_rate(step, total, config.warmup))
    scores: list[float] = []
    best_epoch, best_state, steps = 0, model.trained_state(), 0
    with progress(f"finetune {task.name}", total) as bar:
        for epoch in range(1, config.epochs + 1):
            rng = np.random.default_rng([config.seed, epoch])
            for rows in training_order(train.inputs.lengths, config.batch_size, rng):
                loss = _train_step(model, train, rows, optimizer, config.clip)
                if not math.isfinite(loss):
                    raise SesameError(
                        f"the loss is {loss} at step {steps} of {total}; "
                        f"lower finetune.lr={config.lr:g}"
                    )
                schedule.step()
                steps += 1
                bar.advance()
            scores.append(evaluate(dev, predict(model, dev, answers), answers)[task.metric])
            bar.note(f"{task.metric} {scores[-1]:.3f}")
            if best_epoch == 0 or scores[-1] > scores[best_epoch - 1]:
                best_epoch, best_state = epoch, model.trained_state()
            elif config.patience is not None and epoch - best_epoch >= config.patience:
                break
    model.load_state_dict(best_state, strict=False)
    return scores, best_epoch, steps


def _optimizer(model: Model, config: FinetuneConfig) -> AdamW:
    trained = [value for value in model.parameters() if value.requires_grad]
    matrices = [value for value in trained if value.ndim > 1]
    others = [value for value in trained if value.ndim <= 1]
    groups: list[dict[str, Any]] = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
    return AdamW(groups, lr=config.lr, weight_decay=config.weight_decay, fused=True)


def learning_rate(step: int, total: int, warmup: float) -> float:
    """The factor before `step`: up in a line over the share `warmup`, then down to zero."""
    rising = math.ceil(total * warmup)
    if step < rising:
        return (step + 1) / rising
    return (total - step) / max(total - rising, 1)


def _train_step(
    model: Model, data: TaskData, rows: NDArray[np.int64], optimizer: AdamW, clip: float
) -> float:
    model.train()
    batch, gold_U = data.batch(rows)
    loss = model.head.loss(model(batch.to(model.device)), gold_U.to(model.device))
    optimizer.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)
    if clip:
        nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return loss.item()


@torch.inference_mode()
def predict(model: Model, data: TaskData, answers: Answers) -> list[Prediction]:
    """The model's answers for all examples, in their order."""
    model.eval()
    outputs = np.empty((len(data.gold), answers.outputs), np.float32)
    for rows in evaluation_order(data.inputs.lengths):
        answers_UC = model(data.inputs.batch(rows).to(model.device)).float().cpu().numpy()
        outputs[data.places(rows)] = answers_UC
    return list(answers.from_numbers(outputs, data.examples, data.counts))


def evaluate(data: TaskData, predictions: list[Prediction], answers: Answers) -> dict[str, float]:
    """All scores of the task's kind."""
    gold = [example.gold for example in data.examples]
    return score(answers.kind, gold, [guess.answer for guess in predictions], answers.labels)


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
