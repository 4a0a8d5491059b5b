"""The figures that a benchmark reports."""

import os
from dataclasses import dataclass
from statistics import median

from pipeline.bench.turns import Spent

UNSTEADY = 2.0  # a ratio is meaningless if its highest round is over this many times its lowest


@dataclass(frozen=True)
class Figure:
    """One measured value, with a peer's value if there is one."""

    name: str
    value: float
    unit: str
    peer: float | None = None
    ratio: float | None = None  # how many times better than the peer, by wall time
    spread: str = ""  # lowest and highest ratio seen
    core_ratio: float | None = None  # ratio of CPU seconds, valid on a busy machine too
    others: float | None = None  # share of the machine used by other processes meanwhile
    is_unsteady: bool = False  # the rounds differ too much for `ratio` to mean anything


def compared(name: str, amount: float, unit: str, rounds: list[tuple[Spent, Spent]]) -> Figure:
    """Return our rate and the peer's for `amount` of work per call: medians over the rounds."""
    ratios = sorted(peer.seconds / ours.seconds for ours, peer in rounds)
    everything = sum((spent for pair in rounds for spent in pair), Spent(0.0, 0.0, 0.0))
    return Figure(
        name,
        amount / median(ours.seconds for ours, _ in rounds),
        unit,
        amount / median(peer.seconds for _, peer in rounds),
        median(ratios),
        f"{ratios[0]:.2f}–{ratios[-1]:.2f}",
        median(peer.core_seconds / max(ours.core_seconds, 1e-9) for ours, peer in rounds),
        everything.others / (everything.seconds * (os.cpu_count() or 1)),
        ratios[-1] > UNSTEADY * ratios[0],
    )
