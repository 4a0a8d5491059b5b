"""One form of reference everywhere: a run's name, name@step, a fingerprint's start, a folder."""

from dataclasses import dataclass
from pathlib import Path

from data_prep.errors import UsageError
from pipeline.store.outputs import Output, Store
from pipeline.store.runs import FINGERPRINT, Runs, near


@dataclass(frozen=True)
class Folder:
    """A folder outside the store, such as a Hugging Face model."""

    path: Path


@dataclass(frozen=True)
class Stored:
    """An output of the store, and the checkpoint meant where it is a pretraining."""

    output: Output
    checkpoint: str

    @property
    def is_step(self) -> bool:
        """Whether it is a checkpoint that stays as it is however long its pretraining goes on."""
        return self.checkpoint.isdigit()


def resolve(key: str, text: str, stage: str, store: Store) -> Folder | Stored:
    """What `key=text` refers to: a folder, or an output of `stage` in the store.

    A run wins over a folder or file of its name in the working directory, which is `./name`.
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
            f"{'' if is_run else near(name, runs.names())}"
        )
    found = _with_content(found) or found
    if len(found) > 1:
        choices = ", ".join(output.fingerprint for output in found)
        raise UsageError(
            f"{key}={text}: names {len(found)} outputs of {stage}; give one of {choices}"
        )
    return Stored(found[0], checkpoint or "last")


def _of_run(asked: str, name: str, stage: str, runs: Runs) -> list[Output]:
    """The outputs of a stage that a run's name means: those of its present plan.

    Earlier ones are meant only where the present plan has no such stage.
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
    """Those that have made something: what failed at once is not meant beside them."""
    return [output for output in outputs if output.is_done or output.files()]


def _by_fingerprint(beginning: str, stage: str, store: Store) -> list[Output]:
    if not FINGERPRINT.fullmatch(beginning):
        return []
    return [out for out in store.outputs(stage) if out.fingerprint.startswith(beginning)]
