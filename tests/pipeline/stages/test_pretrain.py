"""Settings a kind of model does not know are refused early; a divergence is rolled back once."""

from dataclasses import replace
from pathlib import Path

import pytest

from data_prep.errors import SesameError, UsageError
from pipeline.config.compose import compose_config
from pipeline.data.cursor import Cursor, Identity
from pipeline.stages.pretrain import Pretrain
from pipeline.store.checkpoints import checkpoints
from pipeline.training.checkpoint import TrainingState
from pipeline.training.exits import REPORTS, Diverged, Dropped
from pipeline.training.job import Job
from pipeline.training.launch import Steps
from tests.pipeline.toy_pretraining import Toy, toy_config


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        (
            "tokenizer=unigram",
            r"tokenizer\.kind=unigram: .* words; use tokenizer=words",
        ),
        ("pretrain.phases=[{max_seq_length: 32}]", r"pretrain\.phases=.* has no lengths"),
        ("trainer.ramp_steps=5", r"trainer\.ramp_steps=5: .*; set it to 0"),
        ("trainer.loader_workers=1", r"trainer\.loader_workers=1: .*; set it to 0"),
        ("trainer.activation_checkpointing=true", r"keeps its activations; set it to false"),
        ("trainer.compile=true", r"trainer\.compile=True: .* set it to false"),
    ],
)
def test_elmo_refuses_what_it_has_no_use_for(setting: str, says: str) -> None:
    config = compose_config(["experiment=elmo_tiny", "corpus.paths=texts", setting])
    with pytest.raises(UsageError, match=says):
        Pretrain().inputs(config)


def test_bert_refuses_whole_words() -> None:
    config = compose_config(["experiment=bert_tiny", "corpus.paths=texts", "tokenizer=words"])
    with pytest.raises(UsageError, match=r"tokenizer\.kind=words: .* has no \[MASK\]"):
        Pretrain().inputs(config)


def test_a_divergence_that_comes_again_after_going_back_stops_with_a_diagnosis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[Job] = []

    def diverge(run_dir: Path, job: Job, steps: Steps) -> None:
        launched.append(job)
        first = 96 * (len(launched) - 1)
        raise Diverged(Dropped(0, first, first + 96, "the loss 7 is beyond 5.3"))

    monkeypatch.setattr("pipeline.training.launch.launch", diverge)
    with pytest.raises(SesameError) as caught:
        Pretrain().run(Toy.make(tmp_path).work("run", toy_config()))
    assert [job.skip for job in launched] == [None, Dropped(0, 0, 96, "the loss 7 is beyond 5.3")]
    said = str(caught.value)
    assert not isinstance(caught.value, Diverged)
    assert "rows 96 to 192 of phase 1" in said and "the loss 7 is beyond 5.3" in said
    assert "gone back to step 0" in said and "optim.lr (now 0.003)" in said


def test_a_launch_that_lost_its_lease_does_not_train_again_after_a_divergence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ranks would replace those of the launch that has taken over."""
    held = [True]

    def diverge(run_dir: Path, job: Job, steps: Steps) -> None:
        assert held.pop(), "it trains on without its lease"
        raise Diverged(Dropped(0, 0, 96, "the loss is not finite"))

    def check_lease() -> None:
        if not held:
            raise SesameError("the lease was taken over")

    monkeypatch.setattr("pipeline.training.launch.launch", diverge)
    work = replace(Toy.make(tmp_path).work("run", toy_config()), check_lease=check_lease)
    with pytest.raises(SesameError, match="the lease was taken over"):
        Pretrain().run(work)


def test_a_launch_killed_after_its_last_checkpoint_leaves_none_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Toy.make(tmp_path).work("run", toy_config())
    identity = Identity("examples", "shards", 0, 2, 16, 0)

    def find_all_steps_taken(run_dir: Path, job: Job, steps: Steps) -> None:
        (run_dir / REPORTS).mkdir()

    for step in (2, 4, 6, 8):
        checkpoint = work.out / "checkpoints" / f"{step:08d}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "state.json").write_text(
            TrainingState(Cursor(0, 0, (), identity), step).as_json()
        )
        (checkpoint / "checksums.json").write_text("{}")
    monkeypatch.setattr("pipeline.training.launch.launch", find_all_steps_taken)
    assert Pretrain().run(work)["steps"] == 8
    assert [int(each.name) for each in checkpoints(work.out / "checkpoints")] == [4, 6, 8]
