"""Every strategy trains for real, in two processes; all give the same curve and resume exactly."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.stages.pretrain import make_job
from tests.pipeline.toy_pretraining import Leg, Toy, run_pair, toy_config

SHARED = ("ddp", "zero1", "zero2", "zero3")


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return Toy.make(tmp_path_factory.mktemp("toy"))


def prepare(toy: Toy, name: str, **trainer: Any) -> Path:
    work = toy.work(name, toy_config(**trainer))
    make_job(work, None).write(work.out)
    return work.out


@pytest.fixture(scope="module")
def runs(toy: Toy) -> dict[str, Path]:
    """One undisturbed run a strategy, each resumed from its middle, and two that change engines."""
    runs = {"single": prepare(toy, "single", micro_batch_size=16)}
    legs = [Leg(str(runs["single"]))]
    for strategy in SHARED:
        settings: dict[str, Any] = {"strategy": strategy, "devices": 2, "micro_batch_size": 4}
        runs[strategy] = prepare(toy, strategy, **settings)
        runs[f"{strategy} resumed"] = prepare(toy, f"{strategy}-resumed", **settings)
        legs.append(Leg(str(runs[strategy])))
        legs.append(Leg(str(runs[f"{strategy} resumed"]), str(runs[strategy]), 4))
    for start, end in (("single", "zero2"), ("zero2", "ddp"), ("ddp", "zero3"), ("zero3", "zero1")):
        name = f"{start} to {end}"
        runs[name] = prepare(toy, name, strategy=end, devices=2)
        legs.append(Leg(str(runs[name]), str(runs[start]), 4))
    run_pair(legs, toy.root / "plan.json")
    return runs


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def losses(run: Path) -> list[float]:
    return [value for line in lines(run) for key, value in line.items() if key.endswith("loss")]


@pytest.mark.parametrize("strategy", SHARED)
def test_strategies_give_the_same_curve(runs: dict[str, Path], strategy: str) -> None:
    """fp32 without dropout; sums in another order differ by 1e-7, eight steps let that grow."""
    expected = losses(runs["single"])
    assert len(expected) == 8 * 3 + 2 * 3
    assert losses(runs[strategy]) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("strategy", SHARED)
def test_resuming_is_bit_exact(runs: dict[str, Path], strategy: str) -> None:
    whole, resumed = runs[strategy], runs[f"{strategy} resumed"]
    assert (whole / "metrics.jsonl").read_bytes() == (resumed / "metrics.jsonl").read_bytes()
    files = sorted(path.name for path in (whole / "checkpoints" / "00000008").glob("*.safetensors"))
    assert len(files) == 3  # weights, and each rank's part of the moments
    for name in files:
        last = Path("checkpoints") / "00000008" / name
        assert (whole / last).read_bytes() == (resumed / last).read_bytes()


@pytest.mark.parametrize(
    "change", ["single to zero2", "zero2 to ddp", "ddp to zero3", "zero3 to zero1"]
)
def test_another_engine_continues_the_same_run(runs: dict[str, Path], change: str) -> None:
    assert losses(runs[change]) == pytest.approx(losses(runs["single"]), rel=1e-4)
    assert [line.get("position") for line in lines(runs[change])] == [
        line.get("position") for line in lines(runs["single"])
    ]


def test_zero_divides_the_optimizer_state(runs: dict[str, Path]) -> None:
    def bytes_of(strategy: str) -> int:
        last = (runs[strategy] / "timing.jsonl").read_text().splitlines()[-1]
        size: int = json.loads(last)["optimizer_bytes"]
        return size

    assert bytes_of("ddp") == bytes_of("single")
    for strategy in ("zero1", "zero2", "zero3"):
        assert bytes_of(strategy) == pytest.approx(bytes_of("ddp") / 2, rel=0.02)
