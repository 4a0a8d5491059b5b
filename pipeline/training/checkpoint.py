"""Checkpoints: one portable format for every strategy and any number of ranks, without pickle.

A checkpoint is a folder `<step>`. It is written under another name and renamed when complete:
    weights-00000-of-00002.safetensors   fp32 weights by parameter name; each rank writes some
                                         parameters, whole
    moments-00000-of-00002.safetensors   their optimizer moments, for AdamW `exp_avg/<name>` and
                                         `exp_avg_sq/<name>`
    carried-00000-of-00002.safetensors   ELMo: LSTM `state` [layer, direction, stream, width];
                                         each rank writes its own streams
    state.json                           `TrainingState`: step, position in the data, running sums
    checksums.json                       size and sha256 of all files above
Earlier versions wrote all weights to one file, `weights.safetensors`; it is read as well.
A checkpoint that fails its check is renamed to `.<step>.damaged` and never removed.

This file reads state.json and checks the files, without torch. `saving` writes tensors, `restoring`
reads them.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from data_prep.errors import SesameError
from data_prep.files import sha256
from pipeline.data.cursor import Cursor, Identity, Span, merge_spans
from pipeline.models.sums import Sums
from pipeline.store.checkpoints import CHECKSUMS, checkpoints
from pipeline.store.verify import DAMAGED, set_aside

FORMAT = 2  # 1: one file with all weights; state.json is the same
READABLE = (1, 2)
STATE = "state.json"


@dataclass
class TrainingState:
    """Progress of a run. Resuming needs only this and the tensors of the checkpoint."""

    cursor: Cursor
    step: int = 0  # optimizer steps taken, dropped ones included
    updates: int = 0  # steps that changed the weights
    tokens: int = 0  # read so far, over all ranks
    seconds: float = 0.0  # time spent training, over all launches
    recent_losses: list[float] = field(default_factory=list)  # of accepted steps, see `guard`
    dropped_since: int | None = None  # first row of the current series of dropped steps
    window: Sums = field(default_factory=Sums)  # sums since the last line of metrics.jsonl
    dropped_steps: int = 0  # consecutive dropped steps up to now
    skip_later: tuple[tuple[int, int, int], ...] = ()  # (phase, start, stop) of later phases

    def skip(self, phase: int, start: int, stop: int) -> None:
        """Exclude rows `start` up to `stop` of this phase or a later one from training."""
        if phase == self.cursor.phase:
            self.cursor = self.cursor.skip(start, stop)
        else:
            self.skip_later = (*self.skip_later, (phase, start, stop))

    def skipped_in(self, phase: int) -> tuple[Span, ...]:
        """Return the excluded row spans of this phase or a later one."""
        if phase == self.cursor.phase:
            return self.cursor.skipped
        return merge_spans([(start, stop) for n, start, stop in self.skip_later if n == phase])

    def begin_phase(self, phase: int, identity: Identity) -> None:
        """Move the cursor to the start of a phase.

        A series of dropped steps continues across the boundary. Otherwise a checkpoint inside the
        series would count as one from before the divergence.
        """
        self.cursor = Cursor(phase, 0, self.skipped_in(phase), identity)
        self.recent_losses = []  # losses of another sequence length are not comparable
        self.dropped_since = 0 if self.dropped_steps else None

    def as_json(self) -> str:
        own = {"cursor": self.cursor.as_json(), "window": self.window.by_name}
        return json.dumps({"format": FORMAT} | asdict(self) | own)


def damaged_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints that were set aside, sorted by name."""
    return sorted(folder.glob(f".*{DAMAGED}*"))


def damage(checkpoint: Path) -> str | None:
    """Compare a checkpoint with its checksums; return what is wrong, or None if it is intact.

    Raises `SesameError` if a file cannot be read at all (permissions, a failing disk): that does
    not prove damage, so nothing is changed.
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
            f"{path}: cannot be read ({error.strerror}); nothing was changed; check the disk and "
            "the permissions, then run the same command again"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{CHECKSUMS} cannot be used ({type(error).__name__})"
    return None


def newest_good(folder: Path, say: Callable[[str], None]) -> Path | None:
    """Return the newest undamaged checkpoint; None if there never was a checkpoint.

    Newer damaged ones are set aside and reported through `say`. Raises `SesameError` if all are
    damaged: to start over, the user must move them away.
    """
    for checkpoint in reversed(checkpoints(folder)):
        fault = damage(checkpoint)
        if fault is None:
            return checkpoint
        aside = set_aside(checkpoint)
        say(f"checkpoint {checkpoint.name} is damaged ({fault}); it is kept as {aside}")
    if lost := damaged_checkpoints(folder):
        names = ", ".join(path.name for path in lost)
        raise SesameError(
            f"{folder}: every checkpoint of this run is damaged ({names}); put a good copy back "
            "under its number, or, to start over from the first step, move these folders away; "
            "then run the same command again"
        )
    return None


def remove_old(folder: Path, keep: int, keep_every: int | None, best: int | None = None) -> None:
    """Remove all checkpoints but the newest `keep`, the best, and multiples of `keep_every`."""
    for checkpoint in checkpoints(folder)[:-keep]:
        step = int(checkpoint.name)
        if step != best and (keep_every is None or step % keep_every):
            shutil.rmtree(checkpoint)


def before_divergence(folder: Path, say: Callable[[str], None]) -> Path | None:
    """Return the newest good checkpoint outside a series of dropped steps; remove newer ones.

    None if no such checkpoint exists.
    """
    while (checkpoint := newest_good(folder, say)) is not None:
        if read_state(checkpoint).dropped_since is None:
            return checkpoint
        shutil.rmtree(checkpoint)
    return None


def read_state(checkpoint: Path) -> TrainingState:
    """Read state.json of a checkpoint. Raises `SesameError` for another format version."""
    content = json.loads((checkpoint / STATE).read_text())
    if content.pop("format") not in READABLE:
        raise SesameError(f"{checkpoint / STATE}: written by another version of Sesame")
    cursor, window = Cursor.from_json(content.pop("cursor")), Sums(content.pop("window"))
    later = tuple((n, start, stop) for n, start, stop in content.pop("skip_later", ()))
    return TrainingState(cursor=cursor, window=window, skip_later=later, **content)
