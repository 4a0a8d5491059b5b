"""Measures the speed of a run for timing.jsonl: tokens per second, FLOP utilisation, memory.

Utilisation is relative to a reference speed. On CUDA the reference is the GPU's published peak (see
`gpus`). On a CPU it is the speed of a plain matrix product of the feed-forward layer's size. All
ranks measure it at the same time, before the first step and again every minute. Other processes can
only make a measurement too low, so the highest one counts. Speed does not belong to the result, so
none of these values is in metrics.jsonl.
"""

import math
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from pipeline.data.loader import Step
from pipeline.models.cost import RowCost
from pipeline.training.gpus import recognise
from pipeline.training.train_step import TrainingModule

PRODUCT_ROWS = 1024
PRODUCT_ROUNDS = 5  # the fastest round counts; other processes disturbed the rest
MEASURE_EVERY = 60.0  # seconds of training between two measurements on a CPU


class Timed:
    """Iterates over the loader's steps, one ahead, and adds up the time spent waiting for them."""

    def __init__(self, steps: Iterable[Step]) -> None:
        self._steps = steps
        self._next: Step | None = None
        self.waited = 0.0

    def __iter__(self) -> Iterator[Step]:
        steps = iter(self._steps)
        current = self._take(steps)
        while current is not None:
            self._next = self._take(steps)
            yield current
            current = self._next

    def _take(self, steps: Iterator[Step]) -> Step | None:
        started = time.monotonic()
        step = next(steps, None)
        self.waited += time.monotonic() - started
        return step

    def next_step(self) -> Step | None:
        """Return the step after the one that was yielded last; None after the last."""
        return self._next


class Reference:
    """The FLOPs per second that all ranks together could reach; `flops` is None if unknown."""

    def __init__(self, measure: Callable[[torch.device], float | None]) -> None:
        self._measure = measure
        self._measured_at = -math.inf  # on the clock of `TrainingState.seconds`
        self.flops: float | None = None

    def renew(self, module: TrainingModule) -> None:
        """Measure again if the last measurement is older than `MEASURE_EVERY`.

        Collective: every rank must call it at the same step. All ranks decide alike, because
        `state.seconds` is rank 0's clock on every rank.
        """
        is_fixed = module.device.type == "cuda" and self._measured_at > -math.inf
        if is_fixed or module.state.seconds - self._measured_at < MEASURE_EVERY:
            return
        self._measured_at = module.state.seconds
        (together,) = module.engine.all_reduce_sum([self._measure(module.device) or 0.0])
        if together > (self.flops or 0.0):
            self.flops = together

    def utilisation(self, flops: float) -> float | None:
        """Return a speed as a share of the reference; None if the reference is unknown, or too low
        (a share above 1)."""
        share = flops / self.flops if self.flops else math.inf
        return share if share <= 1 else None


class Meter:
    """Adds up tokens, positions and FLOPs since the last line of timing.jsonl."""

    def __init__(self, steps: Timed, costs: list[RowCost], reference: Reference) -> None:
        self._steps, self._costs, self._reference = steps, costs, reference
        self._launched = (0.0, 0)
        self._reset(0.0)

    def start(self, module: TrainingModule) -> None:
        """Start counting, so that the first line excludes set-up time. Collective."""
        self._reference.renew(module)
        self._launched = (time.monotonic(), module.state.step)
        self._reset(module.compute_seconds)

    def _reset(self, computed: float) -> None:
        self._clock, self._waited, self._computed = time.monotonic(), self._steps.waited, computed
        self._tokens = self._positions = self._flops = 0.0

    def count(self, module: TrainingModule) -> None:
        """Add the last step. A dropped step counts too, because it was computed."""
        outcome = module.outcome
        assert outcome is not None
        cost = self._costs[outcome.phase]
        self._tokens += outcome.sums.tokens
        self._positions += outcome.rows * cost.positions
        self._flops += cost.flops(outcome.sums)

    def line(self, module: TrainingModule) -> dict[str, Any]:
        """Return a line of timing.jsonl and start the next one. Collective: every rank must call
        it."""
        now = time.monotonic()
        seconds = max(now - self._clock, 1e-9)
        waited = self._steps.waited - self._waited
        computed = module.compute_seconds - self._computed
        told = {
            "step": module.state.step,
            "tokens_per_second": self._tokens / seconds,
            "useful": self._tokens / max(self._positions, 1),
            "flop_utilisation": self._reference.utilisation(self._flops / seconds),
            "seconds": seconds,
            "seconds_left": self._seconds_left(module, now),
            "data_wait": waited / seconds,
            "overhead": max(0.0, 1 - (computed + waited) / seconds),
            "peak_memory_bytes": peak_memory(module.device),
            "optimizer_bytes": module.engine.optimizer_bytes(),
        }
        self._reference.renew(module)  # before the next line's time begins
        self._reset(module.compute_seconds)
        return told

    def _seconds_left(self, module: TrainingModule, now: float) -> float:
        """Estimate the seconds until the budget is spent, from the pace of this launch."""
        if module.total_steps is None:
            assert module.config.max_hours is not None
            return max(0.0, module.config.max_hours * 3600 - module.state.seconds)
        began, first = self._launched
        pace = (now - began) / max(module.state.step - first, 1)
        return (module.total_steps - module.state.step) * pace


def peak_flops(device: torch.device, precision: str, inner: int, outer: int) -> float | None:
    """Return the FLOPs per second this device could reach; None for a GPU not in `gpus.GPUS`."""
    if device.type == "cuda":
        gpu = recognise(torch.cuda.get_device_name(device))
        return gpu.peak(precision) if gpu else None
    dtype = torch.bfloat16 if precision == "bf16-mixed" else torch.float32
    return product_flops(device, dtype, PRODUCT_ROWS, inner, outer)


def product_flops(
    device: torch.device, dtype: torch.dtype, rows: int, inner: int, outer: int
) -> float:
    """Measure the FLOPs per second of a matrix product [rows, inner] · [inner, outer]."""
    left = torch.ones(rows, inner, device=device, dtype=dtype)
    right = torch.ones(inner, outer, device=device, dtype=dtype)
    out = left @ right
    best = float("inf")
    for _ in range(PRODUCT_ROUNDS):
        started = time.monotonic()
        torch.mm(left, right, out=out)
        out[0, 0].item()  # CUDA runs asynchronously, so synchronise before reading the clock
        best = min(best, time.monotonic() - started)
    return 2 * rows * inner * outer / max(best, 1e-9)


def peak_memory(device: torch.device) -> int:
    """Return this rank's peak memory in bytes: of the CUDA device, or else of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux kilobytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
