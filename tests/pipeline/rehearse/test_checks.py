"""Checks of a rehearsal: each finding has its verdict, and a setting to change."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.config.schema import Config
from pipeline.estimate.pretraining import Estimate, estimate
from pipeline.rehearse.checks import Check, Verdict, cost_of, judge
from pipeline.rehearse.legs import Leg, Legs
from pipeline.rehearse.page import as_text, headline, write
from pipeline.stages import STAGES
from pipeline.training.probing import Probed
from tests.pipeline.toy_pretraining import toy_config

LINE = {
    "seconds": 0.5,
    "tokens_per_second": 1000.0,
    "flop_utilisation": 0.4,
    "data_wait": 0.01,
    "peak_memory_bytes": 60e9,
}
RANK = {
    "host": "node1", "accelerator": "cuda", "device": "NVIDIA A100-SXM4-80GB", "memory": 80e9,
    "cores": 8, "python": "3.11", "packages": {"torch": "2.13", "numpy": "2"},
}  # fmt: skip
SPENT = {"step": 12, "waited": 0.1, "written": 3.0}


def leg(line: dict[str, Any] | None = None, ranks: list[Any] | None = None, **changes: Any) -> Leg:
    probed = Probed(ranks or [RANK, RANK], 0.01, 30, [SPENT])
    losses = {step: 5.0 - step / 10 for step in range(1, 9)}
    plain = Leg(losses, dict.fromkeys(losses, 2.0), [LINE | (line or {})] * 5, probed)
    return replace(plain, **changes)


@pytest.fixture
def config() -> Config:
    made = toy_config(strategy="ddp", devices=2, micro_batch_size=8, precision="bf16-mixed")
    made.trainer = replace(made.trainer, accelerator="cuda", checkpoint_every=1000)
    return made


@pytest.fixture
def guess(config: Config) -> Estimate:
    return estimate(config, STAGES)


def legs(**changes: Any) -> Legs:
    everything = {"measured": [leg()], "repeated": leg(), "resumed": leg(), "own": leg()}
    return Legs(24, **(everything | {"fp32": leg()} | changes))


def check_of(part: str, config: Config, guess: Estimate, **changes: Any) -> Check:
    found = [each for each in judge(legs(**changes), config, guess) if part in each.question]
    assert len(found) == 1
    return found[0]


def test_a_sound_rehearsal_is_ready(config: Config, guess: Estimate) -> None:
    checks = judge(legs(), config, guess)
    assert {check.verdict for check in checks} == {Verdict.GOOD}
    assert headline(checks) == "Ready to train"
    assert not any(check.remedy for check in checks)


@pytest.mark.parametrize(
    ("part", "line", "remedy"),
    [
        ("waiting for data", {"data_wait": 0.3}, "trainer.loader_workers=2"),
        ("utilisation", {"flop_utilisation": 0.1}, "a larger trainer.micro_batch_size"),
        ("memory", {"peak_memory_bytes": 79e9}, "trainer.micro_batch_size=4"),
    ],
)
def test_a_slow_or_full_device_names_the_setting_to_change(
    config: Config, guess: Estimate, part: str, line: dict[str, float], remedy: str
) -> None:
    check = check_of(part, config, guess, measured=[leg(line)])
    assert check.verdict == Verdict.CHANGE and check.remedy.startswith(remedy)


def test_unused_memory_is_offered_to_larger_passes(config: Config, guess: Estimate) -> None:
    config.trainer = replace(config.trainer, micro_batch_size=2)
    check = check_of("memory", config, guess, measured=[leg({"peak_memory_bytes": 9e9})])
    assert check.remedy.startswith("trainer.micro_batch_size=4")


def test_memory_that_ran_out_names_a_size_that_fits(config: Config, guess: Estimate) -> None:
    failed = leg(error="rank 0 failed", is_memory=True, timing=[])
    check = check_of("steps run", config, guess, measured=[failed])
    assert (check.verdict, check.remedy) == (Verdict.FAILED, "trainer.micro_batch_size=4")
    alone = leg(error="rank 0 failed", is_memory=True, probed=None)
    config.trainer = replace(config.trainer, micro_batch_size=1)
    check = check_of("steps run", config, guess, measured=[alone])
    assert check.remedy.startswith("trainer.activation_checkpointing=true")


def test_checkpoints_that_take_longer_than_their_interval(config: Config, guess: Estimate) -> None:
    config.trainer = replace(config.trainer, checkpoint_every=4)
    check = check_of("Checkpoints", config, guess)
    assert check.verdict == Verdict.CHANGE
    assert check.remedy == "trainer.checkpoint_every=10"  # 0.1 s are 2 % of 10 steps


def test_ranks_that_miss_or_differ_are_named(config: Config, guess: Estimate) -> None:
    check = check_of("start", config, guess, measured=[leg(ranks=[RANK])])
    assert (check.verdict, check.found[:12]) == (Verdict.FAILED, "1 of 2 ranks")
    other = RANK | {"packages": {"torch": "2.12", "numpy": "2"}}
    check = check_of("packages", config, guess, measured=[leg(ranks=[RANK, other])])
    assert check.found == "torch 2.13 on rank 0, 2.12 on rank 1"
    silent = leg(probed=None, error="rank 1 failed with code 1")
    check = check_of("start", config, guess, measured=[silent])
    assert (check.verdict, check.found) == (Verdict.FAILED, "rank 1 failed with code 1")


def shifted(by: float) -> Leg:
    return leg(losses={step: loss * (1 + by) for step, loss in leg().losses.items()})


def test_a_resumed_run_may_differ_as_two_runs_do(config: Config, guess: Estimate) -> None:
    check = check_of("resumed", config, guess, resumed=shifted(1e-4), repeated=shifted(2e-4))
    assert check.verdict == Verdict.GOOD and "not deterministic" in check.found
    for spread in (0.0, 1e-5):
        check = check_of("resumed", config, guess, resumed=shifted(1e-4), repeated=shifted(spread))
        assert check.verdict == Verdict.FAILED
    check = check_of("read back", config, guess, resumed=leg(error="weight differs"))
    assert (check.verdict, check.found) == (Verdict.FAILED, "weight differs")


def test_kernels_that_disagree_with_fp32_fail(config: Config, guess: Estimate) -> None:
    assert check_of("fp32", config, guess, own=shifted(0.001)).verdict == Verdict.GOOD
    check = check_of("fp32", config, guess, own=shifted(0.05))
    assert check.verdict == Verdict.FAILED and "trainer.precision=fp32" in check.remedy
    check = check_of("fp32", config, guess, own=None, fp32=None)
    assert check.verdict == Verdict.SKIPPED


def test_hours_and_cost_follow_from_the_measured_pace(config: Config, guess: Estimate) -> None:
    cost = cost_of(legs(), config, guess, None)
    assert cost.hours == pytest.approx(8 * 0.5 / 3600)
    assert cost.dollars == pytest.approx(cost.hours * 2 * 1.8)  # two A100-80
    assert cost_of(legs(), config, guess, 10.0).dollars == pytest.approx(cost.hours * 2 * 10)
    unknown = leg(ranks=[RANK | {"device": "NVIDIA B999"}] * 2)
    assert cost_of(legs(measured=[unknown]), config, guess, None).dollars is None
    failed = leg(timing=[], error="it failed")
    assert cost_of(legs(measured=[failed]), config, guess, None).hours is None


def test_both_forms_of_the_page_hold_every_check_and_no_host(
    config: Config, guess: Estimate, tmp_path: Path
) -> None:
    slow = legs(measured=[leg({"data_wait": 0.3})])
    checks, cost = judge(slow, config, guess), cost_of(slow, config, guess, None)
    write(checks, cost, config, tmp_path / "page")
    html = (tmp_path / "page" / "index.html").read_text().replace("<wbr>", "")
    text = (tmp_path / "page" / "rehearsal.txt").read_text()
    assert text == as_text(checks, cost, config)
    assert headline(checks) == "It trains; 1 setting should change"
    for check in checks:
        assert check.question in text and check.question in html
    assert "trainer.loader_workers=2" in text and "trainer.loader_workers=2" in html
    assert "node1" not in text + html
