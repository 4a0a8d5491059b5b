"""What a benchmark reports, and how two sides are timed fairly on a noisy machine."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Figure:
    """One measured value, beside a peer's where there is one."""

    name: str
    value: float
    unit: str
    peer: float | None = None
    ratio: float | None = None  # how many times better than the peer
    spread: str = ""  # lowest and highest ratio seen


def alternate(
    ours: Callable[[], object], peer: Callable[[], object], rounds: int
) -> list[tuple[float, float]]:
    """Seconds of (ours, peer), the sides taking turns so that noise hits both."""
    return [(seconds(ours), seconds(peer)) for _ in range(rounds)]


def seconds(work: Callable[[], object]) -> float:
    """How long a call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def compared(name: str, amount: float, unit: str, rounds: list[tuple[float, float]]) -> Figure:
    """`amount` of work in each round as a rate of ours beside the peer's: medians and spread."""
    ratios = sorted(peer / ours for ours, peer in rounds)
    return Figure(
        name,
        amount / median(ours for ours, _ in rounds),
        unit,
        amount / median(peer for _, peer in rounds),
        median(ratios),
        f"{ratios[0]:.2f}–{ratios[-1]:.2f}",
    )
