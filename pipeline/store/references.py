"""Resolves references: a run's name, name@step, the beginning of a fingerprint, or a folder."""

from dataclasses import dataclass
from pathlib import Path

from data_prep.errors import UsageError
from pipeline.store.outputs import Output, Store
from pipeline.store.runs import FINGERPRINT, Runs, similar_names


@dataclass(frozen=True)
class Folder:
    """A folder outside the store, such as a Hugging Face model."""

    path: Path


@dataclass(frozen=True)
class Stored:
    """An output of the store; for a pretraining also the checkpoint."""

    output: Output
    checkpoint: str  # last, best or a step

    @property
    def is_step(self) -> bool:
        """True for a checkpoint of a fixed step, which is immutable even if its run is still
        training."""
        return self.checkpoint.isdigit()


def resolve(key: str, text: str, stage: str, store: Store) -> Folder | Stored:
    """Return what `key=text` refers to: a folder, or an output of `stage` in the store.

    A run takes precedence over a folder or file of the same name in the working directory; write
    `./name` for that. Raises `UsageError` if nothing or several outputs match.
    """
    name, _, checkpoint = text.partition("@")
    runs = Runs(store)
    is_run = name in runs.names()
    if Path(text).exists() and not is_run:
        return Folder(Path(text))
    if is_run:
        found = _of_run(f"{key}={text}", name, stage, runs)
    else:
        found = _by_fingerprint(name, stage, store)
    if not found:
        raise UsageError(
            f"{key}={text}: no run with a {stage}, fingerprint or folder of this name"
            f"{f'; the folder is ./{name}' if is_run and Path(name).exists() else ''}"
            f"{'' if is_run else similar_names(name, runs.names())}"
        )
    found = _with_content(found) or found
    if len(found) > 1:
        choices = ", ".join(output.fingerprint for output in found)
        raise UsageError(
            f"{key}={text}: names {len(found)} outputs of {stage}; give one of {choices}"
        )
    return Stored(found[0], checkpoint or "last")


def _of_run(asked: str, name: str, stage: str, runs: Runs) -> list[Output]:
    """Return the outputs of a stage in a run's current plan.

    Earlier outputs are returned only if the current plan has no such stage. Raises `UsageError` if
    the current ones are not made yet but earlier ones exist.
    """
    current, earlier = (runs.outputs(name, stage, is_current) for is_current in (True, False))
    before = _with_content(earlier)
    if not current:
        return before
    if before and not _with_content(current):
        unmade = ", ".join(output.fingerprint for output in current)
        choices = ", ".join(output.fingerprint for output in before)
        raise UsageError(
            f"{asked}: the {stage} of this run's present settings ({unmade}) is not made yet; run "
            f"it, or name what the run made before: {choices}"
        )
    return current


def _with_content(outputs: list[Output]) -> list[Output]:
    """Return the outputs that have files. Others failed before they wrote any."""
    return [output for output in outputs if output.is_done or output.files()]


def _by_fingerprint(beginning: str, stage: str, store: Store) -> list[Output]:
    if not FINGERPRINT.fullmatch(beginning):
        return []
    return [out for out in store.outputs(stage) if out.fingerprint.startswith(beginning)]
