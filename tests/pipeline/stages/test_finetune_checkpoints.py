"""Checkpoints of a fine-tuning that are damaged or cannot be saved."""

import errno
import json
from dataclasses import replace
from pathlib import Path

import pytest

from data_prep.errors import SesameError
from pipeline.stages.finetune import Finetune
from pipeline.stages.tracked import TRAINING
from pipeline.store.checkpoints import CHECKPOINTS, checkpoints
from pipeline.tasks import plain_loop
from pipeline.tasks.rank_training import Evaluating
from pipeline.training import saving
from pipeline.training.exits import Interrupted
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
