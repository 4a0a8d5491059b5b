"""Utilisation has the right denominator: all ranks together, at the machine's best moment."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pipeline.training.speed import MEASURE_EVERY, Reference


@dataclass
class Engine:
    """The engine of one of several equal ranks."""

    ranks: int
    sums: int = 0

    def all_reduce_sum(self, values: list[float]) -> list[float]:
        self.sums += 1
        return [self.ranks * value for value in values]


@dataclass
class Module:
    """What a reference asks of a training module."""

    engine: Engine
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    state: Any = field(default_factory=lambda: SimpleNamespace(seconds=0.0))


def test_a_reference_measured_on_a_busy_machine_is_corrected_when_it_is_idle() -> None:
    speeds = iter([20.0, 90.0, 50.0])
    reference, module = Reference(lambda device: next(speeds)), Module(Engine(ranks=2))
    reference.renew(module)
    assert reference.flops == 40.0
    assert reference.utilisation(60.0) is None  # 1.5 of what was measured: no such share
    module.state.seconds = MEASURE_EVERY
    reference.renew(module)
    assert reference.flops == 180.0
    assert reference.utilisation(60.0) == pytest.approx(1 / 3)
    module.state.seconds = 2 * MEASURE_EVERY
    reference.renew(module)
    assert reference.flops == 180.0  # busy again: the best moment counts


def test_measuring_costs_little_and_ranks_measure_together() -> None:
    reference, module = Reference(lambda device: 1.0), Module(Engine(ranks=4))
    for second in range(int(MEASURE_EVERY)):
        module.state.seconds = float(second)
        reference.renew(module)
    assert module.engine.sums == 1


def test_a_gpus_published_peak_is_looked_up_once_and_an_unknown_one_shows_nothing() -> None:
    for peak, shown in ((100.0, 0.25), (None, None)):
        module = Module(Engine(ranks=2), torch.device("cuda", 0))
        reference = Reference(lambda device, peak=peak: peak)  # type: ignore[misc]
        for seconds in (0.0, 2 * MEASURE_EVERY):
            module.state.seconds = seconds
            reference.renew(module)
        assert module.engine.sums == 1
        assert reference.utilisation(50.0) == shown
