"""Fine-tuning: train an encoder and a head on a task's examples and score them on its test set.

The same seed gives the same numbers. `Loop` is the training itself; this file prepares its data
and scores its model.

Try it: sesame finetune encoder=mine task=sst2 task.data_dir=/data/glue/SST-2
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from data_prep.errors import UsageError
from pipeline.encoders import Encoder
from pipeline.tasks.answers import Answers, Prediction
from pipeline.tasks.batches import TaskData
from pipeline.tasks.config import FinetuneConfig, TaskConfig
from pipeline.tasks.examples import Example
from pipeline.tasks.finetuned import Finetuned, build
from pipeline.tasks.history import History
from pipeline.tasks.kinds import make_answers
from pipeline.tasks.model import Model, head_outputs
from pipeline.tasks.plain_loop import PlainLoop
from pipeline.tasks.splits import Splits


class Loop(Protocol):
    """Trains a model: in this process (`plain_loop`), or on ranks (`pipeline.stages.rank_loop`)."""

    def fit(self, model: Model, train: TaskData, dev: TaskData, answers: Answers) -> History:
        """Train the model in place; at the end it has the best evaluation's weights."""


@dataclass(frozen=True)
class Outcome:
    """Scores, predictions and optional weights of a finished fine-tuning."""

    scores: dict[
        str, float
    ]  # by metric on the test set; by metric_name on the files of task.further_tests
    predictions: list[Prediction]  # one per test example, in order
    unlabelled: dict[str, list[Prediction]]  # for the files of task.unlabelled, by name
    dev_scores: list[float]  # the task's metric on the development set, per evaluation
    best_epoch: int  # the evaluation whose weights were used, from 1; see finetune.eval_every
    steps: int  # optimizer steps
    cut: int  # inputs truncated to finetune.max_seq_length
    mix: dict[str, Any] | None = None  # learned layer weights, with finetune.layers=mix
    is_tuned: bool = False  # True if a threshold of the answers was chosen on the development set

    @property
    def dev_score(self) -> float:
        """The development score of the weights that were used."""
        return self.dev_scores[self.best_epoch - 1]

    @property
    def is_chosen_on_dev(self) -> bool:
        """True if the epoch or a threshold was chosen; a single evaluation leaves no choice."""
        return len(self.dev_scores) > 1 or self.is_tuned


def finetune(
    encoder: Encoder,
    splits: Splits,
    task: TaskConfig,
    config: FinetuneConfig,
    loop: Loop | None = None,
    keep: Callable[[Finetuned], None] = lambda finetuned: None,
) -> Outcome:
    """Train, keep the weights with the best development score, and score the test set.

    `loop` trains; by default in this process, without files. Calls `keep` with the best model.

    Changes the encoder's weights in place unless finetune.mode=frozen. Raises a SesameError if the
    loss is not finite.
    """
    answers = make_answers(task, splits.labels, splits.train)
    device = choose_device(config.accelerator)
    loop = loop or PlainLoop(task, config)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(config.seed)
        model = build(encoder, answers, task, config).model

        def encode(examples: Sequence[Example]) -> TaskData:
            return answers.encode(model.encoder, examples, config.max_seq_length)

        train, dev, test = encode(splits.train), encode(splits.dev), encode(splits.test)
        model.to(device)
        history = loop.fit(model, train, dev, answers)
    fitted = answers
    if answers.is_tunable:
        answers = answers.tuned(head_outputs(model, dev), dev)
    keep(Finetuned(model, answers, task, config))

    def predict(examples: Sequence[Example]) -> list[Prediction]:
        data = test if examples is splits.test else encode(examples)
        return answers.decode(head_outputs(model, data), data)

    best = history.best
    assert best is not None, "every training is evaluated after its last step"
    return Outcome(
        **scored(predict, answers, splits),
        dev_scores=[each.score for each in history.evaluations],
        best_epoch=best.number,
        steps=history.evaluations[-1].step,
        cut=sum(part.inputs.cut for part in (train, dev, test)),
        mix=model.head.layers.learned(),
        is_tuned=answers is not fitted,
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
