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
    mode: str = execution("offline", "what wandb does", choices=("online", "offline", "disabled"))
    project: str = execution("sesame", "wandb project")
    entity: str | None = execution(None, "wandb entity")
    group: str | None = execution(None, "wandb group")
    tags: list[str] = execution([], "wandb tags")

    @property
    def wandb_mode(self) -> str:
        """wandb's own variable wins, but does not turn on what is disabled here."""
        return self.mode if self.mode == "disabled" else os.environ.get("WANDB_MODE", self.mode)

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
