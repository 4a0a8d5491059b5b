"""Checkpoints in one portable form for every strategy and any number of ranks, without pickle.

A checkpoint is a folder `<step>` that appears whole, by a rename:
    weights.safetensors                  fp32 weights by parameter name
    moments-00000-of-00002.safetensors   the optimizer's, such as AdamW's `exp_avg/<name>` and
                                         `exp_avg_sq/<name>`; every rank writes some parameters'
    carried-00000-of-00002.safetensors   ELMo: the LSTMs' `state` [layer, direction, stream, width];
                                         every rank writes its streams
    state.json                           the step, the place in the data, the sums under way
    checksums.json                       size and sha256 of all of these
A checkpoint that fails its check is set aside as `.<step>.damaged`, and never removed.

Here is what a checkpoint says and whether it is whole, without torch; `saving` has the tensors.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from data_prep.errors import SesameError
from data_prep.files import sha256
from pipeline.data.cursor import Cursor, Identity, Span, merge_spans
from pipeline.store.checkpoints import CHECKSUMS, checkpoints
from pipeline.training.sums import Sums

FORMAT = 1
WEIGHTS = "weights.safetensors"
STATE = "state.json"
DAMAGED = ".damaged"  # ends the name of a checkpoint that was set aside


@dataclass
class TrainingState:
    """Where a run stands; all of it is in a checkpoint, and nothing else is needed to go on."""

    cursor: Cursor
    step: int = 0  # optimizer steps taken, dropped ones included
    updates: int = 0  # steps that changed the weights
    tokens: int = 0  # pieces read, over all ranks
    seconds: float = 0.0  # time spent training
    recent_losses: list[float] = field(default_factory=list)  # of accepted steps, see `guard`
    dropped_since: int | None = None  # the position at which a series of dropped steps began
    window: Sums = Sums()  # since the last line of metrics
    dropped_steps: int = 0  # in a row, up to now
    skip_later: tuple[tuple[int, int, int], ...] = ()  # of later phases: phase, start, stop

    def skip(self, phase: int, start: int, stop: int) -> None:
        """Never read positions `start` to `stop` of a phase, this one or a later one."""
        if phase == self.cursor.phase:
            self.cursor = self.cursor.skip(start, stop)
        else:
            self.skip_later = (*self.skip_later, (phase, start, stop))

    def skipped_in(self, phase: int) -> tuple[Span, ...]:
        """The positions of this phase or a later one that are never read."""
        if phase == self.cursor.phase:
            return self.cursor.skipped
        return merge_spans([(start, stop) for n, start, stop in self.skip_later if n == phase])

    def begin_phase(self, phase: int, identity: Identity) -> None:
        """Go to the start of the next phase.

        A series of dropped steps goes on in it, so that no checkpoint inside the series counts as
        one from before the divergence.
        """
        self.cursor = Cursor(phase, 0, self.skipped_in(phase), identity)
        self.recent_losses = []  # another length has other losses
        self.dropped_since = 0 if self.dropped_steps else None

    def as_json(self) -> str:
        return json.dumps({"format": FORMAT} | asdict(self) | {"cursor": self.cursor.as_json()})


def damaged_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints that were set aside."""
    return sorted(folder.glob(f".*{DAMAGED}*"))


def damage(checkpoint: Path) -> str | None:
    """What is wrong with the content of a checkpoint, if anything is.

    A file that cannot be read at all (permissions, a failing disk) is no proof of damage: that is
    an error, and nothing is changed.
    """
    path = checkpoint / CHECKSUMS
    try:
        checksums = json.loads(path.read_text())
        for name, expected in checksums.items():
            path = checkpoint / name
            if path.stat().st_size != expected["bytes"]:
                return f"{name} has {path.stat().st_size} bytes instead of {expected['bytes']}"
            if sha256(path) != expected["sha256"]:
                return f"{name} does not match its checksum"
    except FileNotFoundError:
        return f"{path.name} is missing"
    except OSError as error:
        raise SesameError(
            f"{path}: cannot be read ({error.strerror}); nothing was changed; see to the disk and "
            "the permissions, then run the same command again"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{CHECKSUMS} cannot be used ({type(error).__name__})"
    return None


def newest_good(folder: Path, say: Callable[[str], None]) -> Path | None:
    """The newest undamaged checkpoint; None if there never was one.

    Damaged newer ones are set aside and named. Where damaged ones are all there is, this is an
    error: to start over, the user moves them away.
    """
    for checkpoint in reversed(checkpoints(folder)):
        fault = damage(checkpoint)
        if fault is None:
            return checkpoint
        aside = _set_aside(checkpoint)
        say(f"checkpoint {checkpoint.name} is damaged ({fault}); it is kept as {aside}")
    if lost := damaged_checkpoints(folder):
        names = ", ".join(path.name for path in lost)
        raise SesameError(
            f"{folder}: every checkpoint of this run is damaged ({names}); put a good copy back "
            "under its number, or, to start over from the first step, move these folders away; "
            "then run the same command again"
        )
    return None


def _set_aside(checkpoint: Path) -> Path:
    """Rename a damaged checkpoint, so that nothing uses, counts or removes it.

    The name is hidden, so that it does not become part of the finished output.
    """
    aside = checkpoint.with_name(f".{checkpoint.name}{DAMAGED}")
    number = 1
    while aside.exists():
        number += 1
        aside = checkpoint.with_name(f".{checkpoint.name}{DAMAGED}-{number}")
    checkpoint.rename(aside)
    return aside


def before_divergence(folder: Path, say: Callable[[str], None]) -> Path | None:
    """The newest good checkpoint from before steps were dropped; newer ones are removed."""
    while (checkpoint := newest_good(folder, say)) is not None:
        if read_state(checkpoint).dropped_since is None:
            return checkpoint
        shutil.rmtree(checkpoint)
    return None


def read_state(checkpoint: Path) -> TrainingState:
    """The run's state at a checkpoint."""
    content = json.loads((checkpoint / STATE).read_text())
    if content.pop("format") != FORMAT:
        raise SesameError(f"{checkpoint / STATE}: written by another version of Sesame")
    cursor, window = Cursor.from_json(content.pop("cursor")), Sums(**content.pop("window"))
    later = tuple((n, start, stop) for n, start, stop in content.pop("skip_later", ()))
    return TrainingState(cursor=cursor, window=window, skip_later=later, **content)
