"""ELMo trains in every strategy, in two processes; carried state makes resuming exact, too."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from pipeline.config.schema import Config, TrackingConfig
from pipeline.models.elmo.config import ElmoConfig
from pipeline.models.elmo.objective import NextWords
from pipeline.stages.pretrain import make_job
from pipeline.training.checkpoint import damage
from pipeline.training.config import OptimConfig, TrainerConfig
from pipeline.training.restoring import read_carried
from pipeline.workflow.stage import Work
from tests.pipeline.toy_pretraining import Leg, lines, run_pair
from tests.pipeline.toy_streams import PREDICTED, make_examples

SHARED = ("ddp", "zero1", "zero2", "zero3")
STREAMS = 8
MODEL = ElmoConfig(
    layers=2, cell=12, projection=6, dropout=0.0, character_dim=4, max_characters=12,
    filters=[[1, 4], [2, 6]], highways=1, window=5, forget_every=3, samples=16,
)  # fmt: skip


def toy_config(optim: str = "adagrad", **trainer: Any) -> Config:
    defaults: dict[str, Any] = {
        "global_batch_size": STREAMS, "max_steps": 8, "log_every": 1, "eval_every": 4,
        "checkpoint_every": 4, "keep_checkpoints": 3, "seed": 0, "timeout_minutes": 5.0,
    }  # fmt: skip
    return Config(
        model=MODEL,
        optim=OptimConfig(kind=optim, lr=0.1, warmup=0.0, schedule="constant", clip=10.0),
        trainer=TrainerConfig(**(defaults | trainer)),
        tracking=TrackingConfig(mode="disabled"),
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("elmo")
    _, tokenizer, examples = make_examples(root)
    folders: dict[str, Path] = {}
    legs: list[Leg] = []

    def add(name: str, leg: dict[str, Any] | None = None, **config: Any) -> None:
        folders[name] = root / "runs" / name
        folders[name].mkdir(parents=True)
        inputs = {"tokenizer": tokenizer, "examples.0": examples}
        work = Work(toy_config(**config), inputs, folders[name], name)
        make_job(work, None).write(work.out)
        legs.append(Leg(str(folders[name]), **(leg or {})))

    add("single", micro_batch_size=STREAMS)
    for strategy in SHARED:
        shared = {"strategy": strategy, "devices": 2, "micro_batch_size": 2}
        add(strategy, **shared)
        add(f"{strategy} resumed", {"copy_of": str(folders[strategy]), "step": 4}, **shared)
    add("one rank", {"copy_of": str(folders["zero2"]), "step": 4})
    add("two ranks", {"copy_of": str(folders["single"]), "step": 4}, strategy="zero3", devices=2)
    add("adamw", optim="adamw")
    add("bf16", precision="bf16-mixed")
    run_pair(legs, root / "plan.json")
    return folders


def losses(run: Path) -> list[float]:
    return [value for line in lines(run) for key, value in line.items() if key.endswith("loss")]


@pytest.mark.parametrize("strategy", SHARED)
def test_strategies_give_the_same_curve(runs: dict[str, Path], strategy: str) -> None:
    expected = losses(runs["single"])
    assert len(expected) == 8 * 3 + 2 * 3
    assert losses(runs[strategy]) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("strategy", SHARED)
def test_resuming_is_bit_exact_with_carried_state(runs: dict[str, Path], strategy: str) -> None:
    whole, resumed = runs[strategy], runs[f"{strategy} resumed"]
    assert (whole / "metrics.jsonl").read_bytes() == (resumed / "metrics.jsonl").read_bytes()
    last = Path("checkpoints") / "00000008"
    files = sorted(path.name for path in (whole / last).glob("*.safetensors"))
    assert [name.partition("-")[0] for name in files] == [
        "carried", "carried", "moments", "moments", "weights", "weights",
    ]  # fmt: skip
    for name in files:
        assert (whole / last / name).read_bytes() == (resumed / last / name).read_bytes()


@pytest.mark.parametrize("name", ["one rank", "two ranks"])
def test_carried_state_is_elastic(runs: dict[str, Path], name: str) -> None:
    assert losses(runs[name]) == pytest.approx(losses(runs["single"]), rel=1e-4)
    checkpoints = [runs[run] / "checkpoints" / "00000008" for run in ("single", name)]
    assert damage(checkpoints[1]) is None
    expected, carried = (read_carried(checkpoint, 0, 1) for checkpoint in checkpoints)
    assert expected is not None and carried is not None
    assert expected.shape == (2, 2, STREAMS, MODEL.cell + MODEL.projection)
    assert expected.abs().sum() > 0  # steps 6 and 7 have read since streams began anew
    assert carried.numpy() == pytest.approx(expected.numpy(), abs=1e-4)


def test_adagrad_accumulates_from_one_and_adamw_is_an_option(runs: dict[str, Path]) -> None:
    moments = load_file(
        runs["single"] / "checkpoints" / "00000008" / "moments-00000-of-00001.safetensors"
    )
    assert all(name.startswith("sum/") for name in moments)
    assert all((sums >= 1.0).all() for sums in moments.values())
    assert any((sums > 1.0).any() for sums in moments.values())
    assert losses(runs["adamw"]) != losses(runs["single"])


def test_bf16_trains_as_fp32_does(runs: dict[str, Path]) -> None:
    assert losses(runs["bf16"]) == pytest.approx(losses(runs["single"]), rel=0.03)
    assert losses(runs["bf16"]) != pytest.approx(losses(runs["single"]), rel=1e-5)


def test_held_out_lines_tell_both_directions(runs: dict[str, Path]) -> None:
    told = [line for line in lines(runs["single"]) if "heldout_loss" in line]
    assert [line["step"] for line in told] == [4, 8]
    for line in told:
        both = line["heldout_forward_loss"] + line["heldout_backward_loss"]
        assert line["heldout_loss"] == pytest.approx(both / 2)
        assert line["heldout_perplexity"] == pytest.approx(math.exp(both / 2))
    assert told[1]["heldout_loss"] < told[0]["heldout_loss"] < math.log(PREDICTED)


def test_streams_begin_with_nothing_when_they_are_told_to_forget() -> None:
    objective = NextWords(MODEL, PREDICTED, STREAMS, seed=0)
    batch = SimpleNamespace(streams=slice(0, STREAMS))
    remembered = []
    for step in range(7):
        objective.begin(step, torch.device("cpu"))
        remembered.append(bool(objective.carried.any()))
        objective.losses(lambda _, state, __: (None, state + 1), batch)
        objective.end(accepted=True)
    assert remembered == [False, True, True, False, True, True, False]
