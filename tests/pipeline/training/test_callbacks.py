"""Held-out evaluation whose loss is not finite, without training."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from data_prep.errors import SesameError
from pipeline.data.cursor import Cursor, Identity
from pipeline.export.card import evaluations
from pipeline.models.bert.objective import MaskedTokens
from pipeline.models.sums import Sums
from pipeline.stages.pretrain import losses_by_stratum
from pipeline.store.journal import Journal
from pipeline.training import callbacks
from pipeline.training.callbacks import Evaluation
from pipeline.training.checkpoint import TrainingState
from pipeline.training.config import OptimConfig, TrainerConfig
from pipeline.training.schedule import Phase
from pipeline.training.train_step import TrainingModule
from pipeline.training.updates import PretrainingUpdates
from pipeline.training.whole_engines import SingleEngine

IDENTITY = Identity("examples", "shards", 0, 32, 16, 0)
LAST = 8


def module_at(step: int) -> TrainingModule:
    state = TrainingState(Cursor(0, 16 * step, (), IDENTITY), step)
    module = TrainingModule(
        torch.nn.Linear(1, 1), MaskedTokens(), PretrainingUpdates(OptimConfig()),
        TrainerConfig(max_steps=LAST, seed=0), state, [Phase(0, 0, LAST)], [IDENTITY],
        lambda: False,
    )  # fmt: skip
    module.trainer = SimpleNamespace(strategy=SingleEngine(torch.device("cpu")))  # type: ignore[assignment]
    return module


@pytest.fixture
def evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Evaluation, list[str]]:
    """An evaluation that finds no number, and what it says."""
    found = Sums({"mlm_sum": math.nan, "mlm_correct": 1.0, "predictions": 4.0, "tokens": 9.0})
    means = MaskedTokens().metrics(found)
    monkeypatch.setattr(callbacks, "evaluate", lambda module, batches: means)
    said: list[str] = []
    metrics = Journal(tmp_path / "metrics.jsonl", lambda: None)
    nowhere: Any = lambda line: None  # noqa: E731
    return Evaluation(
        lambda phase: [], lambda phase: {}, 4, True, metrics, nowhere, said.append
    ), said


def test_on_the_way_it_is_recorded_as_null_and_said(
    evaluation: tuple[Evaluation, list[str]], tmp_path: Path
) -> None:
    callback, said = evaluation
    callback.after_step(module_at(4))
    assert said == ["the held-out loss is not finite after step 4; it is recorded as null"]
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    told = json.loads(line, parse_constant=pytest.fail)  # NaN is no JSON
    assert told == {
        "step": 4, "heldout_loss": None, "heldout_mlm_loss": None, "heldout_mlm_accuracy": 0.25,
        "heldout_pair_loss": None, "heldout_pair_accuracy": None, "heldout_perplexity": None,
        "evaluation_failed": "the held-out loss is not finite",
    }  # fmt: skip


def test_after_the_last_step_training_stops(evaluation: tuple[Evaluation, list[str]]) -> None:
    with pytest.raises(SesameError, match=r"after the last step \(8\).*trainer\.precision=fp32"):
        evaluation[0].after_step(module_at(LAST))


def test_training_does_not_start_from_such_a_model(
    evaluation: tuple[Evaluation, list[str]],
) -> None:
    module = module_at(0)
    with pytest.raises(SesameError, match=r"choose another init\.source"):
        evaluation[0].on_train_start(module.trainer, module)


def test_the_last_line_has_the_loss_of_each_source_and_language(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callbacks, "evaluate", lambda module, batches: {"loss": float(batches[0])})
    metrics = Journal(tmp_path / "metrics.jsonl", lambda: None)
    nowhere: Any = lambda line: None  # noqa: E731
    strata = {"source/notes": [2], "language/sv": [3]}
    callback = Evaluation(lambda phase: [1], lambda phase: strata, 4, True, metrics, nowhere, print)
    callback.after_step(module_at(4))
    callback.after_step(module_at(LAST))
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == [
        {"step": 4, "heldout_loss": 1.0},
        {
            "step": LAST,
            "heldout_loss": 1.0,
            "heldout_loss/source/notes": 2.0,
            "heldout_loss/language/sv": 3.0,
        },
    ]
    assert losses_by_stratum(tmp_path / "metrics.jsonl") == {
        "heldout_loss": {"by_source": {"notes": 2.0}, "by_language": {"sv": 3.0}}
    }
    assert evaluations(tmp_path)[LAST] == {"heldout_loss": 1.0}, "a card names no source"
    assert losses_by_stratum(tmp_path / "none.jsonl") == {}
