"""A profiler window over a few steps (`trainer.profile`), kept as a trace and as a table."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import LightningModule, Trainer
from torch.profiler import ProfilerActivity, profile

from pipeline.training.callbacks import EndOfStep
from pipeline.training.train_step import TrainingModule

STEPS = 10  # of the window
ROWS = 40  # of the table: operations that take most time


class Profile(EndOfStep):
    """Records rank 0 from step `first` on, for `STEPS` steps or to the end of the launch.

    Writes profile/<first>.json.gz, a trace for Perfetto, and profile/<first>.txt, a table,
    below `run_dir`. A launch that begins after step `first` records nothing.
    """

    def __init__(self, first: int, run_dir: Path, say: Callable[[str], None]) -> None:
        self._first, self._folder, self._say = first, run_dir / "profile", say
        self._running: profile | None = None

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, TrainingModule)
        if pl_module.engine.rank == 0 and pl_module.state.step == self._first:
            self._running = profile(activities=_activities())
            self._running.start()

    def after_step(self, module: TrainingModule) -> None:
        if module.state.step >= self._first + STEPS:
            self._finish()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._finish()

    def _finish(self) -> None:
        if self._running is None:
            return
        running, self._running = self._running, None
        running.stop()
        self._folder.mkdir(exist_ok=True)
        trace = self._folder / f"{self._first}.json.gz"
        running.export_chrome_trace(str(trace))
        by = "self_cuda_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
        table = running.key_averages().table(sort_by=by, row_limit=ROWS)
        trace.with_name(f"{self._first}.txt").write_text(table + "\n")
        self._say(f"profiled from step {self._first:,} on: {trace} (trace), {self._first}.txt")


def _activities() -> list[ProfilerActivity]:
    cuda = [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
    return [ProfilerActivity.CPU, *cuda]
