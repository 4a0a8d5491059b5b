"""Run the legs of a rehearsal: short launches of the real job, in a scratch folder of their own.

    measured    from the first step on, `steps` steps; one such leg per phase
    repeated    the first phase's leg again: are two runs on these devices equal?
    resumed     from the measured leg's checkpoint halfway, to the same end
    own, fp32   a few steps without dropout in the job's precision, and in fp32

Every leg starts ranks exactly as `sesame pretrain` does. Nothing is written to the run's output.
"""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import median
from typing import Any

from data_prep.errors import SesameError
from pipeline.store.checkpoints import CHECKPOINTS
from pipeline.tracking.config import TrackingConfig
from pipeline.training.exits import REPORTS, Interrupted
from pipeline.training.job import Job
from pipeline.training.probing import Probed

COMPARED_STEPS = 3  # of the legs that compare precisions
WARM_UP = 3  # first steps, which allocate memory and choose kernels, are not timed
OUT_OF_MEMORY = (
    "OutOfMemoryError",
    "CUDA out of memory",
    "can't allocate memory",
    "DefaultCPUAllo",
)
Launch = Callable[[Path, Job], None]


@dataclass(frozen=True)
class Leg:
    """The result of one leg."""

    losses: dict[int, float]  # by step
    norms: dict[int, float]  # gradient norms by step
    timing: list[dict[str, Any]]  # lines of timing.jsonl, without the first steps
    probed: Probed | None
    error: str = ""  # why the leg failed; empty if it did not
    is_memory: bool = False  # it failed because memory ran out

    def typical(self, key: str) -> float | None:
        """Return the median of a column of timing.jsonl; None if it was not measured."""
        values = [line[key] for line in self.timing if line.get(key) is not None]
        return float(median(values)) if values else None

    def most(self, key: str) -> float | None:
        """Return the highest value of a column of timing.jsonl; None if it was not measured."""
        return max((line[key] for line in self.timing if line.get(key) is not None), default=None)


@dataclass(frozen=True)
class Legs:
    """The results of all legs. A leg is None if it was not run: an earlier one had failed, or the
    job has nothing to compare."""

    steps: int
    measured: list[Leg]  # one per phase
    repeated: Leg | None
    resumed: Leg | None
    own: Leg | None
    fp32: Leg | None


def run_legs(
    job: Job, folder: Path, steps: int, launch: Launch, say: Callable[[str], None]
) -> Legs:
    """Run all legs of a job below `folder`, which must not exist, and remove it afterwards."""
    runner = _Runner(rehearsed(job, steps), folder, launch, say)
    try:
        return runner.run(steps)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def rehearsed(job: Job, steps: int) -> Job:
    """Return the job with every step logged, a checkpoint halfway, and no dashboard."""
    trainer = replace(
        job.trainer,
        log_every=1,
        checkpoint_every=steps // 2,
        eval_every=steps // 2,
        keep_checkpoints=2,
        keep_every=None,
        profile=None,
    )
    quiet = TrackingConfig(mode="disabled")
    return replace(job, trainer=trainer, tracking=quiet, checkpoint=None, skip=None)


def of_phase(job: Job, number: int) -> Job:
    """Return a job that trains only this phase, with the whole budget."""
    phase = replace(job.phases[number], share=1.0)
    return replace(job, phases=[phase], examples=[job.examples[number]])


def without_dropout(job: Job, precision: str) -> Job:
    """Return the job without dropout, whose random bits differ between kernels."""
    rates = [item.name for item in fields(job.model) if item.name.endswith("dropout")]
    none: dict[str, Any] = dict.fromkeys(rates, 0.0)
    model = replace(job.model, **none)
    return replace(job, model=model, trainer=replace(job.trainer, precision=precision))


class _Runner:
    def __init__(self, job: Job, folder: Path, launch: Launch, say: Callable[[str], None]) -> None:
        self._job, self._folder, self._launch, self._say = job, folder, launch, say

    def run(self, steps: int) -> Legs:
        job, half = self._job, steps // 2
        measured = [self._leg("measured", of_phase(job, 0), steps)]
        is_good = not measured[0].error
        resumed = self._resume(of_phase(job, 0), half, steps) if is_good else None
        self._remove("measured")
        repeated = self._leg("repeated", of_phase(job, 0), steps) if is_good else None
        self._remove("repeated")
        for number in range(1, len(job.phases)):
            measured.append(self._leg(f"phase {number + 1}", of_phase(job, number), steps))
            self._remove(f"phase {number + 1}")
        own = fp32 = None
        if is_good and job.trainer.precision != "fp32":
            first = of_phase(job, 0)
            own = self._leg(
                "own precision", without_dropout(first, job.trainer.precision), COMPARED_STEPS
            )
            fp32 = self._leg("fp32", without_dropout(first, "fp32"), COMPARED_STEPS)
        return Legs(steps, measured, repeated, resumed, own, fp32)

    def _resume(self, job: Job, half: int, steps: int) -> Leg:
        """Continue the measured leg from its checkpoint halfway, in a folder of its own."""
        name = f"{half:08d}"
        target = self._folder / "resumed" / CHECKPOINTS / name
        source = self._folder / "measured" / CHECKPOINTS / name
        shutil.copytree(source, target, copy_function=os.link)  # the same disk: no bytes are copied
        leg = self._leg("resumed", replace(job, checkpoint=name), steps)
        self._remove("resumed")
        return leg

    def _leg(self, name: str, job: Job, stop_at: int) -> Leg:
        self._say(f"{name}, to step {stop_at}")
        run_dir = self._folder / name
        run_dir.mkdir(parents=True, exist_ok=True)
        error = ""
        try:
            self._launch(run_dir, replace(job, stop_at=stop_at))
        except Interrupted:
            pass  # the way a leg ends
        except SesameError as raised:
            error = str(raised)
        return read_leg(run_dir, error)

    def _remove(self, name: str) -> None:
        shutil.rmtree(self._folder / name, ignore_errors=True)


def read_leg(run_dir: Path, error: str) -> Leg:
    """Read the result of a leg from its folder."""
    metrics = [line for line in _lines(run_dir / "metrics.jsonl") if "lr" in line]
    logs = "".join(
        path.read_text(errors="replace")
        for path in sorted((run_dir / REPORTS).glob("*"))
        if path.suffix in (".log", ".error")
    )
    return Leg(
        losses={line["step"]: line["loss"] for line in metrics},
        norms={line["step"]: line["gradient_norm"] for line in metrics},
        timing=_lines(run_dir / "timing.jsonl")[WARM_UP:],
        probed=Probed.read(run_dir),
        error=error,
        is_memory=bool(error) and any(mark in logs + error for mark in OUT_OF_MEMORY),
    )


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]
