"""wandb, through Lightning's logger: offline unless told otherwise, and never a reason to stop.

The run's id is kept in the run's directory, so that a resumed run continues its own curve. Nothing
about the machine, the code or the command line is captured.
"""

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from data_prep.files import write_atomically
from pipeline.config import TrackingConfig

FOLDER = ".tracking"


class Tracker:
    """Sends lines of metrics to wandb; after the first failure it only says so and goes quiet."""

    def __init__(
        self, config: TrackingConfig, name: str, run_dir: Path, say: Callable[[str], None]
    ) -> None:
        self._logger: Any = None
        self._say = say
        if config.mode != "disabled":
            self._guard(lambda: self._start(config, name, run_dir))

    def _start(self, config: TrackingConfig, name: str, run_dir: Path) -> None:
        os.environ.setdefault("WANDB_SILENT", "true")  # it talks before it reads its settings

        import wandb
        from pytorch_lightning.loggers import WandbLogger

        folder = run_dir / FOLDER
        folder.mkdir(exist_ok=True)
        settings = wandb.Settings(
            console="off",
            disable_code=True,
            disable_git=True,
            x_disable_meta=True,
            x_disable_machine_info=True,
            x_disable_stats=True,
            silent=True,
            program="sesame pretrain",
            host="",
        )
        logger = WandbLogger(
            name=name,
            save_dir=folder,
            id=_run_id(folder),
            offline=config.mode == "offline",
            project=config.project,
            entity=config.entity,
            group=config.group,
            tags=config.tags,
            resume="allow",
            settings=settings,
        )
        logger._wandb_init.pop("anonymous", None)  # wandb complains of this even where it is unset
        _ = logger.experiment  # connect now, so that a failure is known before training
        self._logger = logger

    def log(self, line: dict[str, Any]) -> None:
        """Send a line that has a `step`."""
        if self._logger is not None:
            numbers = {key: value for key, value in line.items() if isinstance(value, int | float)}
            step = int(numbers.pop("step"))
            self._guard(lambda: self._logger.log_metrics(numbers, step))

    def close(self) -> None:
        """Flush everything."""
        if self._logger is not None:
            self._guard(lambda: self._logger.experiment.finish())

    def _guard(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # whatever a dashboard does, the run goes on
            self._logger = None
            self._say(f"tracking is off from here on: {type(error).__name__}: {error}")


def _run_id(folder: Path) -> str:
    path = folder / "id"
    if not path.exists():
        write_atomically(path, uuid.uuid4().hex[:12])
    return path.read_text()
