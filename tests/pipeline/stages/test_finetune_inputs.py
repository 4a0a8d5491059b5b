"""What a fine-tuning encodes and computes, where, and how often."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.encoders import random_encoder
from pipeline.tasks import finetuning
from pipeline.tasks.answers import Answers, Floats
from pipeline.tasks.batches import TaskData
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.encoded import EncodedSplits
from pipeline.tasks.examples import Example
from pipeline.tasks.finetuning import finetune
from pipeline.tasks.history import Trained
from pipeline.tasks.model import Model
from pipeline.tasks.splits import Splits
from tests.pipeline.stages.test_finetune_loops import PLAIN, TUNING, WORDS, tokenizer

__all__ = ["tokenizer"]  # fixture

ONCE = replace(TUNING, epochs=1, eval_every=None)
TASKS = {
    "classify": TaskConfig(name="toy"),
    "multilabel": TaskConfig(name="toy", kind="multilabel", metric="micro_f1"),
    "tuned": TaskConfig(name="toy", kind="multilabel", metric="micro_f1", tune_threshold=True),
    "span": TaskConfig(name="toy", kind="span", reader="squad", metric="f1"),
    "unanswerable": TaskConfig(
        name="toy", kind="span", reader="squad", metric="f1", unanswerable=True
    ),
}


def examples(kind: str, count: int) -> list[Example]:
    rng = np.random.default_rng(0)
    made = []
    for number in range(count):
        text = " ".join(str(word) for word in rng.choice(WORDS, 5))
        if kind == "span":
            last = text.rpartition(" ")[2]
            texts, gold = ("w0", text), (last,)
            start = len(text) - len(last)
            made.append(Example(texts, gold, "", 0, str(number), answer_start=start))
        else:
            label = str(number % 2)
            made.append(Example((text,), (label,) if kind == "multilabel" else label, "", 0))
    return made


def splits_of(task: TaskConfig, has_test: bool) -> Splits:
    train, dev, test = (examples(task.kind, count) for count in (32, 12, 10))
    return Splits(train, dev, test if has_test else dev, [] if task.kind == "span" else ["0", "1"])


class Stop(Exception):
    """Ends a fine-tuning in a test."""


def test_the_device_and_the_training_data_belong_to_the_loop(
    tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks would find a device whose memory this process has taken."""
    encoded: list[Sequence[Example]] = []
    encode = EncodedSplits.encode

    def recorded(self: EncodedSplits, given: Sequence[Example]) -> TaskData:
        encoded.append(given)
        return encode(self, given)

    class Loop:
        def fit(self, model: Model, data: EncodedSplits, answers: Answers) -> Trained:
            assert model.device == torch.device("cpu") and encoded == []
            raise Stop

    monkeypatch.setattr(finetuning, "choose_device", lambda accelerator: torch.device("meta"))
    monkeypatch.setattr(EncodedSplits, "encode", recorded)
    task = TASKS["classify"]
    with pytest.raises(Stop):
        finetune(random_encoder(PLAIN, tokenizer, 0), splits_of(task, True), task, ONCE, Loop())


@pytest.mark.parametrize("has_test", [False, True])
@pytest.mark.parametrize("name", list(TASKS))
def test_a_set_of_examples_is_computed_once_after_training(
    name: str, has_test: bool, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The development set only where answers are tuned on it; not again if it is the test set."""
    computed: list[int] = []
    head_outputs = finetuning.head_outputs

    def counted(model: Model, data: TaskData) -> Floats:
        computed.append(len(data.examples))
        return head_outputs(model, data)

    monkeypatch.setattr(finetuning, "head_outputs", counted)
    task = TASKS[name]
    outcome = finetune(random_encoder(PLAIN, tokenizer, 0), splits_of(task, has_test), task, ONCE)
    test, dev = (10 if has_test else 12), [12] if name in ("tuned", "unanswerable") else []
    assert computed == ([*dev, test] if has_test or not dev else dev)
    assert len(outcome.predictions) == test
