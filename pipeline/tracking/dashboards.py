"""Lightning's loggers, opened for one pretraining: wandb, TensorBoard, CSV.

Each starts with an empty folder and is told the whole run so far, so that what it shows after an
interruption is the run and nothing else. Nothing about the machine, the code or the command line
is captured.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers import CSVLogger, Logger, TensorBoardLogger, WandbLogger

from pipeline.tracking.config import TrackingConfig
from pipeline.tracking.lineage import Artifact, artifacts, inputs_of
from pipeline.tracking.training import Training
from pipeline.tracking.wandb_settings import belonging, private_settings

CONNECT_SECONDS = 30.0  # until a server counts as unreachable
FLUSH_SECONDS = 30.0  # for what a server has not taken when training ends
AXIS = "trainer/global_step"  # the x-axis that Lightning tells wandb to use


class WandbRun(WandbLogger):
    """One run in wandb, whose steps are optimizer steps and whose artifacts are references."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Send a row, unless the run a server goes on with has it already."""
        assert step is not None
        if step >= self.experiment.step:
            self.experiment.log({**metrics, AXIS: step}, step=step)

    def use(self, artifact: Artifact) -> None:
        """Note what training reads. wandb's `use_artifact` refuses to offline, and waits online."""
        self.experiment._log_artifact(_reference(artifact), use_after_commit=True)

    def make(self, artifact: Artifact) -> None:
        """Note what training made."""
        self.experiment.log_artifact(_reference(artifact), aliases=list(artifact.aliases))

    def finish(self) -> None:
        """End the run and wait until all is written, or sent."""
        self.experiment.finish()


def _reference(artifact: Artifact) -> Any:
    from wandb import Artifact as Reference
    from wandb.sdk.artifacts.artifact_manifest_entry import ArtifactManifestEntry

    reference = Reference(artifact.name, artifact.kind, metadata=artifact.facts)
    for name, file in artifact.files.items():
        entry = ArtifactManifestEntry(
            path=name, ref=file.path.as_uri(), digest=file.sha256, size=file.size
        )
        reference.manifest.add_entry(entry)
    return reference


def open_wandb(config: TrackingConfig, training: Training, mode: str, folder: Path) -> WandbRun:
    """A run of the training's own id; online it is gone on with, else written anew."""
    run = WandbRun(
        save_dir=folder,
        id=training.id,
        mode=mode,
        resume="allow" if mode == "online" else None,
        settings=private_settings(CONNECT_SECONDS, FLUSH_SECONDS),
        **belonging(config, training.name),
    )
    run._wandb_init.pop("anonymous", None)  # wandb complains of this even where it is unset
    run.log_hyperparams(training.config())
    for artifact in inputs_of(training.store, training.output):
        run.use(artifact)
    return run


def _wandb(config: TrackingConfig, training: Training) -> Logger:
    return open_wandb(config, training, config.wandb_mode, training.folder)


def _tensorboard(config: TrackingConfig, training: Training) -> Logger:
    logger = TensorBoardLogger(
        training.folder, name="tensorboard", version="", default_hp_metric=False
    )
    logger.log_hyperparams(training.config())
    return logger


def _csv(config: TrackingConfig, training: Training) -> Logger:
    logger = CSVLogger(training.folder, name="csv", version="", flush_logs_every_n_steps=1)
    logger.log_hyperparams(training.config())
    return logger


_OPEN = {"wandb": _wandb, "tensorboard": _tensorboard, "csv": _csv}


def open_dashboard(name: str, config: TrackingConfig, training: Training) -> Logger:
    """A dashboard with nothing on it but the recipe."""
    shutil.rmtree(training.folder / name, ignore_errors=True)
    training.folder.mkdir(exist_ok=True)
    return _OPEN[name](config, training)


def close_dashboard(logger: Logger, training: Training) -> None:
    """Say what training made, and flush."""
    if isinstance(logger, WandbRun):
        for artifact in artifacts(training.output):
            logger.make(artifact)
        logger.finish()
    else:
        logger.finalize("success")
