"""Opens Lightning's loggers for one pretraining: wandb, TensorBoard, CSV.

Each logger starts with an empty folder and receives the whole run so far, so that after an
interruption it shows exactly the run. Nothing about the machine, the code or the command line is
recorded.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers import CSVLogger, Logger, TensorBoardLogger, WandbLogger

from pipeline.tracking.config import TrackingConfig
from pipeline.tracking.lineage import Artifact, artifacts, inputs_of
from pipeline.tracking.training import Training
from pipeline.tracking.wandb_settings import belonging, code_version, private_settings

CONNECT_SECONDS = 30.0  # until a server counts as unreachable
FLUSH_SECONDS = 30.0  # at the end of training, to send what is still queued
AXIS = "trainer/global_step"  # the x-axis that Lightning defines in wandb


class WandbRun(WandbLogger):
    """A run in wandb. Its steps are optimizer steps; its artifacts are references, not uploads."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Send one row, unless the server already has this step of a resumed run."""
        assert step is not None
        if step >= self.experiment.step:
            self.experiment.log({**metrics, AXIS: step}, step=step)

    def use(self, artifact: Artifact) -> None:
        """Record an input of training. wandb's `use_artifact` fails offline and blocks online."""
        self.experiment._log_artifact(_reference(artifact), use_after_commit=True)

    def make(self, artifact: Artifact) -> None:
        """Record an output of training."""
        self.experiment.log_artifact(_reference(artifact), aliases=list(artifact.aliases))

    def finish(self) -> None:
        """End the run; wait until everything is written or sent."""
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


def described(config: TrackingConfig, training: Training) -> dict[str, Any]:
    """Return the settings of a training for a dashboard, with the code's version if asked for."""
    return training.config() | ({"code": code_version()} if config.code else {})


def open_wandb(config: TrackingConfig, training: Training, mode: str, folder: Path) -> WandbRun:
    """Open a wandb run with the training's id: online it is resumed, otherwise written anew."""
    run = WandbRun(
        save_dir=folder,
        id=training.id,
        mode=mode,
        resume="allow" if mode == "online" else None,
        settings=private_settings(
            training.output.stage, CONNECT_SECONDS, FLUSH_SECONDS, config.system
        ),
        **belonging(config, training.name, training.output.stage),
    )
    run._wandb_init.pop("anonymous", None)  # wandb warns about this option even if it is None
    run.log_hyperparams(described(config, training))
    for artifact in inputs_of(training.store, training.output):
        run.use(artifact)
    return run


def _wandb(config: TrackingConfig, training: Training) -> Logger:
    return open_wandb(config, training, config.wandb_mode, training.folder)


def _tensorboard(config: TrackingConfig, training: Training) -> Logger:
    logger = TensorBoardLogger(
        training.folder, name="tensorboard", version="", default_hp_metric=False
    )
    logger.log_hyperparams(described(config, training))
    return logger


def _csv(config: TrackingConfig, training: Training) -> Logger:
    logger = CSVLogger(training.folder, name="csv", version="", flush_logs_every_n_steps=1)
    logger.log_hyperparams(described(config, training))
    return logger


_OPEN = {"wandb": _wandb, "tensorboard": _tensorboard, "csv": _csv}


def open_dashboard(name: str, config: TrackingConfig, training: Training) -> Logger:
    """Open a logger on an emptied folder and log the recipe to it."""
    shutil.rmtree(training.folder / name, ignore_errors=True)
    training.folder.mkdir(exist_ok=True)
    return _OPEN[name](config, training)


def close_dashboard(logger: Logger, training: Training) -> None:
    """Record the checkpoints of the training (wandb only) and flush."""
    if isinstance(logger, WandbRun):
        is_listed = training.output.stage == "pretrain" or training.output.is_done
        for artifact in artifacts(training.output) if is_listed else ():
            logger.make(artifact)
        logger.finish()
    else:
        logger.finalize("success")
