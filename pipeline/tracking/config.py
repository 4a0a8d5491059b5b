"""Config section of the dashboards."""

import importlib.util
import os
from dataclasses import dataclass

from data_prep.errors import UsageError
from data_prep.fields import execution


@dataclass
class TrackingConfig:
    """Experiment dashboards."""

    loggers: list[str] = execution(
        ["wandb"], "dashboards to write", choices=("wandb", "tensorboard", "csv")
    )
    mode: str = execution(
        "offline",
        "mode of wandb; overrides WANDB_MODE, except environment, which uses WANDB_MODE (offline "
        "if that is not set)",
        choices=("online", "offline", "disabled", "environment"),
    )
    project: str = execution("sesame", "wandb project")
    entity: str | None = execution(None, "wandb entity", holds_environment=True)
    group: str | None = execution(None, "wandb group; the run's name, or the sweep's, if not set")
    label: str | None = execution(
        None, "name of the run in wandb; the run's name, or the swept settings, if not set"
    )
    tags: list[str] = execution([], "wandb tags")
    system: bool = execution(
        False, "let wandb record use of CPU, GPU, memory and network while a training runs"
    )
    code: bool = execution(
        False, "record the git commit of Sesame's code, and whether it has been changed"
    )

    @property
    def wandb_mode(self) -> str:
        """The mode in which wandb is started; WANDB_MODE counts only for `environment`."""
        if self.mode != "environment":
            return self.mode
        return os.environ.get("WANDB_MODE", "offline")

    @property
    def active(self) -> list[str]:
        """The dashboards to write; wandb is left out if it is disabled."""
        return [name for name in self.loggers if name != "wandb" or self.wandb_mode != "disabled"]

    def check(self) -> None:
        """Raise `UsageError` if TensorBoard is wanted but not installed."""
        if "tensorboard" in self.loggers and importlib.util.find_spec("tensorboard") is None:
            raise UsageError(
                "tracking.loggers=[tensorboard]: TensorBoard is not installed; "
                "pip install 'sesame-encoders[tensorboard]'"
            )
