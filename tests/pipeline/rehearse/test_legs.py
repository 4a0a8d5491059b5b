"""A rehearsal trains for real, leaves nothing behind but its page, and notices what is wrong."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from data_prep.errors import SesameError
from pipeline.rehearse import legs as rehearsing
from pipeline.rehearse.legs import Legs, of_phase, rehearsed, run_legs, without_dropout
from pipeline.stages.pretrain import make_job
from pipeline.training.environment import local_variables
from pipeline.training.exits import REPORTS, Interrupted
from pipeline.training.job import Job
from pipeline.training.rank import train
from pipeline.training.stopping import StopRequest
from tests.pipeline.toy_pretraining import Toy, toy_config

STEPS = 8


def train_here(run_dir: Path, job: Job) -> None:
    """Train in this process instead of ranks of their own, which take seconds to start."""
    (run_dir / REPORTS).mkdir(exist_ok=True)
    job.write(run_dir)
    if not train(run_dir, StopRequest()):
        raise Interrupted("as told")


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return Toy.make(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module", autouse=True)
def one_rank() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in local_variables(toy_config().trainer).items():
            patch.setenv(name, value)
        patch.setenv("RANK", "0")
        patch.setenv("LOCAL_RANK", "0")
        yield


def toy_job(toy: Toy, **config: object) -> Job:
    job = make_job(toy.work("run", toy_config(two_phases=True, **config)), None)  # type: ignore[arg-type]
    # Legs cut a training short: its budget is a thousand steps.
    return replace(job, trainer=replace(job.trainer, max_steps=1000))


@pytest.fixture(scope="module")
def result(toy: Toy) -> Legs:
    """Two phases with dropout; the last part of the rehearsal compares two precisions."""
    job = toy_job(toy, dropout=0.1, precision="bf16-mixed")
    said: list[str] = []
    before = sorted(toy.root.rglob("*"))
    found = run_legs(job, toy.root / "scratch", STEPS, train_here, said.append)
    assert [text.partition(",")[0] for text in said] == [
        "measured", "resumed", "repeated", "phase 2", "own precision", "fp32",
    ]  # fmt: skip
    assert sorted(toy.root.rglob("*")) == before, "a rehearsal leaves nothing in the store"
    return found


def test_every_leg_runs_to_its_step(result: Legs) -> None:
    assert all(not leg.error for leg in result.measured) and len(result.measured) == 2
    assert [max(leg.losses) for leg in result.measured] == [STEPS, STEPS]
    assert result.own is not None and result.fp32 is not None
    assert list(result.own.losses) == list(result.fp32.losses) == [1, 2, 3]
    speed, memory = result.measured[0].typical("seconds"), result.measured[0].most("missing")
    assert speed is not None and speed > 0 and memory is None


def test_a_resumed_and_a_repeated_leg_equal_the_first(result: Legs) -> None:
    first, resumed, repeated = result.measured[0], result.resumed, result.repeated
    assert resumed is not None and repeated is not None
    assert repeated.losses == first.losses
    assert resumed.losses == {step: first.losses[step] for step in range(5, STEPS + 1)}
    assert resumed.probed is not None and resumed.probed.compared_tensors > 30
    assert first.probed is not None
    assert [spent["step"] for spent in first.probed.checkpoints] == [4, 8]


def test_precisions_are_compared_without_dropout(toy: Toy) -> None:
    job = without_dropout(toy_job(toy, dropout=0.1), "bf16-mixed")
    assert (job.model.dropout, job.model.attention_dropout) == (0.0, 0.0)  # type: ignore[attr-defined]
    assert job.trainer.precision == "bf16-mixed"


def test_a_rehearsed_job_is_the_real_one_but_for_what_is_written(toy: Toy) -> None:
    job = toy_job(toy)
    short = of_phase(rehearsed(job, STEPS), 1)
    assert short.examples == job.examples[1:] and short.phases[0].max_seq_length == 40
    assert short.tracking.mode == "disabled"
    kept = replace(
        job.trainer, log_every=1, checkpoint_every=4, eval_every=4, keep_checkpoints=2
    )  # budget, batch, precision, strategy and schedule are the job's
    assert short.trainer == kept
    assert (short.model, short.optim) == (job.model, job.optim)


def test_a_failing_first_leg_ends_the_rehearsal_with_its_reason(toy: Toy) -> None:
    def fail(run_dir: Path, job: Job) -> None:
        (run_dir / REPORTS).mkdir()
        (run_dir / REPORTS / "1.log").write_text("torch.OutOfMemoryError: CUDA out of memory")
        raise SesameError("rank 1 failed")

    job = of_phase(toy_job(toy), 0)
    found = run_legs(job, toy.root / "scratch", STEPS, fail, lambda text: None)
    (leg,) = found.measured
    assert (leg.error, leg.is_memory, leg.probed) == ("rank 1 failed", True, None)
    assert found.resumed is found.repeated is found.own is found.fp32 is None
    assert not (toy.root / "scratch").exists()


def test_a_budget_shorter_than_the_rehearsal_is_run_to_its_end(toy: Toy) -> None:
    job = of_phase(toy_job(toy), 0)
    job = replace(job, trainer=replace(job.trainer, max_steps=4))
    found = run_legs(job, toy.root / "scratch", 24, train_here, lambda text: None)
    assert found.resumed is not None
    assert list(found.measured[0].losses) == [1, 2, 3, 4]
    assert list(found.resumed.losses) == [3, 4]


def test_state_that_differs_from_the_checkpoint_is_noticed(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy = rehearsing.shutil.copytree

    def flip(source: Path, target: Path, copy_function: object) -> Path:
        """The disk gives back other numbers than it was given."""
        made = healthy(source, target)
        monkeypatch.setattr("pipeline.training.probing.torch.equal", lambda left, right: False)
        return Path(made)

    monkeypatch.setattr(rehearsing.shutil, "copytree", flip)
    job = of_phase(toy_job(toy), 0)
    found = run_legs(job, toy.root / "scratch", STEPS, train_here, lambda text: None)
    assert found.resumed is not None
    assert "differs from the checkpoint right after it was restored" in found.resumed.error
