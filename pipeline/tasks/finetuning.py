"""Fine-tuning: train an encoder and a head on a task's examples and score them on its test set.

The same seed gives the same numbers. `Loop` is the training itself; this file prepares its data
and scores its model.

Try it: sesame finetune encoder=mine task=sst2 task.data_dir=/data/glue/SST-2
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from pipeline.encoders import Encoder
from pipeline.tasks.answers import Answers, Floats, Prediction
from pipeline.tasks.config import FinetuneConfig, TaskConfig
from pipeline.tasks.device import choose_device
from pipeline.tasks.encoded import EncodedSplits
from pipeline.tasks.examples import Example
from pipeline.tasks.finetuned import Finetuned, build
from pipeline.tasks.history import Trained
from pipeline.tasks.kinds import make_answers
from pipeline.tasks.model import Model, head_outputs
from pipeline.tasks.plain_loop import PlainLoop
from pipeline.tasks.splits import Splits


class Loop(Protocol):
    """Trains a model: in this process (`plain_loop`), or on ranks (`pipeline.stages.rank_loop`)."""

    def fit(self, model: Model, data: EncodedSplits, answers: Answers) -> Trained:
        """Train the model in place; at the end it has the best evaluation's weights.

        The model is on the CPU before: on ranks only they may take memory of a device.
        """


@dataclass(frozen=True)
class Outcome:
    """Scores, predictions and optional weights of a finished fine-tuning."""

    # By metric on the test set; by metric_name on the files of task.further_tests.
    scores: dict[str, float]
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
    loop = loop or PlainLoop(task, config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = build(encoder, answers, task, config).model
        data = EncodedSplits(model, answers, splits, config.max_seq_length)
        history, cut = loop.fit(model, data, answers)
    model.to(choose_device(config.accelerator))
    fitted = answers
    of_dev: Floats | None = None
    if answers.is_tunable:
        of_dev = head_outputs(model, data.dev)
        answers = answers.tuned(of_dev, data.dev)
    keep(Finetuned(model, answers, task, config))

    def predict(examples: Sequence[Example]) -> list[Prediction]:
        inputs = data.test if examples is splits.test else data.encode(examples)
        if of_dev is not None and inputs is data.dev:
            return answers.decode(of_dev, inputs)
        return answers.decode(head_outputs(model, inputs), inputs)

    best = history.best
    assert best is not None, "every training is evaluated after its last step"
    return Outcome(
        **scored(predict, answers, splits),
        dev_scores=[each.score for each in history.evaluations],
        best_epoch=best.number,
        steps=history.evaluations[-1].step,
        cut=cut + data.test.inputs.cut,
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
