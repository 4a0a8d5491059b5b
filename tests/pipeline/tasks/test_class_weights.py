"""Class weights: scikit-learn's balance, torch's weighted cross-entropy."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.utils.class_weight import compute_class_weight

from data_prep.errors import UsageError
from pipeline.config.compose import compose_config
from pipeline.encoders import InputBatch
from pipeline.tasks.class_weights import class_weights
from pipeline.tasks.config import FinetuneConfig, TaskConfig
from pipeline.tasks.examples import Example
from pipeline.tasks.heads import Head
from pipeline.tasks.kinds import make_answers
from tests.pipeline.tasks.test_heads import States, batch

TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def weigh(given: Any, kind: str, labels: list[str], golds: list[Any]) -> list[float] | None:
    task = TaskConfig(kind=kind, class_weights=given)
    return class_weights(task, labels, [Example(("x",), gold, "", 0) for gold in golds])


def test_balanced_weights_are_scikit_learns() -> None:
    golds = ["a"] * 7 + ["b"] * 2 + ["c"]
    expected = compute_class_weight("balanced", classes=np.array([*"abc"]), y=golds)
    assert weigh("balanced", "classify", [*"abc"], golds) == pytest.approx(expected.tolist())
    tags = [("O", "O", "B-PER"), ("O",)]  # counted by word
    weights = weigh("balanced", "tag", TAGS, tags)
    assert weights is not None and weights[:2] == pytest.approx([4 / 6, 4 / 2])
    assert all(np.isfinite(weights))


def test_a_mapping_names_labels_tags_or_types() -> None:
    assert weigh({"b": 3, "a": 0.5}, "classify", [*"abc"], []) == [0.5, 3.0, 1.0]
    assert weigh({1: 3}, "classify", ["0", "1"], []) == [1.0, 3.0]  # YAML reads a number
    assert weigh({"PER": 2, "I-PER": 5}, "tag", TAGS, []) == [1.0, 2.0, 5.0, 1.0, 1.0]
    assert weigh(None, "classify", [*"abc"], []) is None
    with pytest.raises(UsageError, match=r"task\.class_weights: 1 of its 2 names are no labels"):
        weigh({"a": 1, "d": 1}, "classify", [*"abc"], [])


@pytest.mark.parametrize("kind", ["classify", "tag"])
def test_the_loss_is_torchs_weighted_cross_entropy(kind: str) -> None:
    weights = [0.5, 3.0, 1.5]
    head = Head(kind, 3, States(), FinetuneConfig(), weights=weights)
    answers = torch.randn(11, 3, generator=torch.Generator().manual_seed(0))
    gold, inputs = torch.arange(11) % 3, batch([*range(11)], [3, 1, 7])
    expected = F.cross_entropy(answers, gold, torch.tensor(weights))
    torch.testing.assert_close(head.loss(answers, gold, inputs), expected)
    parts = [_sums(head, answers[part], gold[part], inputs) for part in (slice(4), slice(4, 11))]
    total, weight = (sum(column) for column in zip(*parts, strict=True))
    torch.testing.assert_close(total / weight, expected)
    assert "weights_C" not in head.state_dict(), "a kept model does not need them"


def _sums(head: Head, answers: torch.Tensor, gold: torch.Tensor, inputs: InputBatch) -> Any:
    return head.loss_sums(answers, gold, inputs)


def test_weights_reach_the_head() -> None:
    task = TaskConfig(kind="classify", class_weights={"b": 2.0})
    assert make_answers(task, [*"ab"], []).weights == [1.0, 2.0]
    assert make_answers(TaskConfig(), [*"ab"], []).weights is None


@pytest.mark.parametrize("given", ["even", {"a": -1}, {"a": "much"}, 3])
def test_other_weights_are_refused(given: Any) -> None:
    with pytest.raises(UsageError, match=r"task\.class_weights: must be balanced"):
        TaskConfig(class_weights=given).check()


def test_weights_need_a_loss_per_answer() -> None:
    with pytest.raises(UsageError, match=r"task\.class_weights: only task\.kind=classify and tag"):
        TaskConfig(kind="regress", metric="pearson", class_weights="balanced").check()
    with pytest.raises(UsageError, match=r"task\.class_weights: a CRF has one loss per sentence"):
        compose_config(["task=wnut17", "task.class_weights=balanced", "finetune.crf=true"])
    given = compose_config(["task=wnut17", "task.class_weights={person: 2}"]).task.class_weights
    assert given == {"person": 2}
