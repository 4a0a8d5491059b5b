"""Checkpoints of a fine-tuning that are damaged or cannot be saved; evaluations that take long."""

import errno
import faulthandler
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_prep.errors import SesameError
from pipeline.stages.finetune import Finetune
from pipeline.stages.tracked import TRAINING
from pipeline.store.checkpoints import CHECKPOINTS, checkpoints
from pipeline.tasks import plain_loop, rank_training
from pipeline.tasks.answers import ClassAnswers
from pipeline.tasks.heads import Head
from pipeline.tasks.rank_training import Evaluating
from pipeline.training import saving
from pipeline.training.exits import Interrupted
from pipeline.training.saving import Saver
from tests.pipeline.stages.test_finetune_loops import (
    TUNING,
    StopsAt,
    data,
    journal,
    rank_in_this_process,
    run,
    settings,
    tokenizer,
    work_of,
)

__all__ = ["data", "rank_in_this_process", "tokenizer"]  # fixtures


@pytest.mark.parametrize("engine", ["plain", "ranks"])
def test_a_damaged_newest_checkpoint_costs_the_steps_since_the_one_before(
    engine: str,
    tokenizer: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rank_in_this_process: None,
) -> None:
    tuning = replace(TUNING, engine=engine, checkpoint_minutes=0.0, eval_every=1)
    # On ranks the newest checkpoint has the best weights, so that the best ones before are needed.
    monkeypatch.setattr(Evaluating, "_score", lambda self, module: module.state.step / 100)
    whole = run(settings(data, tuning), tokenizer, tmp_path / "whole")
    work = work_of(settings(data, tuning), tokenizer, tmp_path / "damaged")
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(plain_loop, "StopRequest", StopsAt)
        Finetune().run(work)
    folder = work.out / TRAINING / CHECKPOINTS
    *earlier, _, newest = checkpoints(folder)
    assert len(earlier) <= 1  # that of the best weights
    [weights] = newest.glob("weights*")
    weights.write_bytes(weights.read_bytes()[:-1])
    Finetune().run(work)
    assert (journal(work), json.loads((work.out / "scores.json").read_text())) == whole


def test_a_stop_while_the_test_set_is_scored_loses_no_step(
    tokenizer: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(settings(data, TUNING), tokenizer, tmp_path / "whole")
    work = work_of(settings(data, TUNING), tokenizer, tmp_path / "stopped")
    monkeypatch.setattr(plain_loop, "WORTH_SAVING", 0.0)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ClassAnswers, "score", stop)
        patch.setattr(plain_loop, "development_score", lambda *_: 0.5)
        Finetune().run(work)
    [newest] = checkpoints(work.out / TRAINING / CHECKPOINTS)
    assert int(newest.name) == whole[1]["steps"]


def stop(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_damaged_checkpoint_with_the_best_weights_is_refused(
    tokenizer: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rank_in_this_process: None,
) -> None:
    work = work_of(settings(data, replace(TUNING, engine="ranks")), tokenizer, tmp_path)
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(plain_loop, "StopRequest", StopsAt)
        Finetune().run(work)
    best, _ = checkpoints(work.out / TRAINING / CHECKPOINTS)
    [weights] = best.glob("weights*")
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    with pytest.raises(SesameError, match=rf"{best}: .*best weights.*does not match its checksum"):
        Finetune().run(work)
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    Finetune().run(work)
    assert (work.out / "scores.json").exists()


def test_best_weights_that_cannot_be_saved_end_the_training(
    tokenizer: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rank_in_this_process: None,
) -> None:
    work = work_of(settings(data, replace(TUNING, engine="ranks")), tokenizer, tmp_path)

    def full(tensors: object, path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(saving, "save_file", full)
        with pytest.raises(SesameError, match=r"best weights so far .*make room on the disk"):
            Finetune().run(work)
    Finetune().run(work)
    assert (work.out / "scores.json").exists()


def test_a_long_evaluation_is_no_step_that_hangs(
    tokenizer: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rank_in_this_process: None,
) -> None:
    """The watchdog's timer starts anew before every batch, before decoding and before a wait."""
    events: list[str] = []

    def noted(owner: type, name: str) -> None:
        real = getattr(owner, name)

        def call(*given: Any, **named: Any) -> Any:
            events.append(name)
            return real(*given, **named)

        monkeypatch.setattr(owner, name, call)

    for owner, name in ((Head, "decide"), (ClassAnswers, "tuned"), (Saver, "wait")):
        noted(owner, name)
    monkeypatch.setattr(
        faulthandler, "dump_traceback_later", lambda seconds, **_: events.append(f"{seconds:g} s")
    )
    monkeypatch.setattr(rank_training, "evaluation_order", lambda lengths: np.arange(40)[:, None])
    tuning = replace(TUNING, engine="ranks", epochs=1, timeout_minutes=0.5)
    run(settings(data, tuning), tokenizer, tmp_path)
    in_ranks = events[: len(events) - events[::-1].index("30 s")]
    assert in_ranks.count("decide") == 2 * 40 and "wait" in in_ranks
    twice = ("wait", "wait")  # the second has nothing to wait for
    before = {a for a, b in pairwise(in_ranks) if not b.endswith(" s") and (a, b) != twice}
    assert before == {"30 s"}
