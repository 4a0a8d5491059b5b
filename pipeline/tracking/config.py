"""Settings of dashboards."""

import importlib.util
import os
from dataclasses import dataclass

from data_prep.errors import UsageError
from data_prep.fields import execution


@dataclass
class TrackingConfig:
    """Experiment dashboards."""

    loggers: list[str] = execution(
        ["wandb"], "which dashboards", choices=("wandb", "tensorboard", "csv")
    )
    mode: str = execution(
        "offline",
        "what wandb does, whatever WANDB_MODE says; environment: what WANDB_MODE says, and offline "
        "where it is not set",
        choices=("online", "offline", "disabled", "environment"),
    )
    project: str = execution("sesame", "wandb project")
    entity: str | None = execution(None, "wandb entity")
    group: str | None = execution(None, "wandb group")
    tags: list[str] = execution([], "wandb tags")

    @property
    def wandb_mode(self) -> str:
        """The mode that wandb is started in: its own variable counts only where we leave it to."""
        if self.mode != "environment":
            return self.mode
        return os.environ.get("WANDB_MODE", "offline")

    @property
    def active(self) -> list[str]:
        """The dashboards that are told anything."""
        return [name for name in self.loggers if name != "wandb" or self.wandb_mode != "disabled"]

    def check(self) -> None:
        """Refuse a dashboard that is not installed."""
        if "tensorboard" in self.loggers and importlib.util.find_spec("tensorboard") is None:
            raise UsageError(
                "tracking.loggers=[tensorboard]: TensorBoard is not installed; "
                "pip install 'sesame-encoders[tensorboard]'"
            )
