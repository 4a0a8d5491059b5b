"""`sesame sync`: uploads a pretraining to wandb as one run, whole and in order."""

from pathlib import Path

from data_prep.errors import UsageError
from pipeline.commands.arguments import Arguments
from pipeline.config.compose import compose_config
from pipeline.store.outputs import Store
from pipeline.store.references import Stored, resolve
from pipeline.tasks.summary import summarise
from pipeline.tracking.sync import sync
from pipeline.tracking.training import Training
from pipeline.training.job import Job


def sync_run(arguments: Arguments) -> None:
    """Upload a run's metrics so far, finished or not, and print the address."""
    if len(arguments.words) != 1:
        raise UsageError("name one run, such as: sesame sync demo")
    (reference,) = arguments.words
    config = compose_config(arguments.overrides)
    found = resolve("run", reference, "pretrain", Store(Path(config.paths.store)))
    if not isinstance(found, Stored):
        raise UsageError(f"run={reference}: a folder; name a run or a fingerprint of the store")
    folder = found.output.path
    if not (folder / "metrics.jsonl").exists():
        raise UsageError(f"run={reference}: no step of its pretraining is measured yet ({folder})")
    job = Job.read(folder)  # the name and settings of the training
    print(sync(Training.in_folder(job.name, folder), job.tracking, _means))


def _means(score_files: list[Path]) -> dict[str, float]:
    """Return the means over seeds by task, metric and, in a sweep, settings."""
    return {
        "/".join(part for part in (score.task, score.metric, score.variant) if part): score.mean
        for score in summarise(score_files)
    }
