"""The position of a run in its data, the identity of that data, and the batch size per step.

The training step advances the cursor once per optimizer step and checkpoints store it. The loader
is not asked for its position, because it reads ahead.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

from data_prep.errors import SesameError, UsageError

Span = tuple[int, int]  # rows [start, stop) of the endless sequence of a phase


@dataclass(frozen=True)
class Place:
    """The steps of one phase to read: from `step`, whose first row is `position`, up to `stop`."""

    step: int = 0
    position: int = 0
    skipped: Sequence[Span] = ()  # row spans that are never read
    stop: int | None = None  # None: without end


@dataclass(frozen=True)
class BatchSchedule:
    """Rows per optimizer step: a quarter, half, then three quarters of the full batch during the
    ramp; after it the full batch."""

    global_batch_size: int
    ramp_steps: int = 0

    def size(self, step: int) -> int:
        """Return the rows of step number `step`, over all ranks."""
        if step >= self.ramp_steps:
            return self.global_batch_size
        return self.global_batch_size // 4 * (1 + 3 * step // self.ramp_steps)

    def check(self, world: int) -> None:
        """Raise `UsageError` unless every step's rows divide equally among `world` ranks."""
        unit = 4 * world if self.ramp_steps else world
        if self.global_batch_size % unit:
            lower = self.global_batch_size // unit * unit
            fits = [size for size in (lower, lower + unit) if size]
            ramp = f" times 4 (trainer.ramp_steps={self.ramp_steps})" if self.ramp_steps else ""
            raise UsageError(
                f"trainer.global_batch_size={self.global_batch_size}: must divide by the {world} "
                f"ranks{ramp}; fits: {', '.join(map(str, fits))}"
            )


@dataclass(frozen=True)
class Identity:
    """The data that a cursor refers to. Resuming requires every field to be equal (see `check`)."""

    examples: str  # fingerprint of the examples' output: corpus, tokenizer, recipe
    shards: str  # ChunkStore.digest: every chunk's size and checksum
    seed: int
    shuffle_window: int
    global_batch_size: int
    ramp_steps: int


NAMES = {  # of the fields, in error messages
    "examples": "the examples' fingerprint",
    "shards": "the checksum of their shard list",
    "seed": "trainer.seed",
    "shuffle_window": "trainer.shuffle_window",
    "global_batch_size": "trainer.global_batch_size",
    "ramp_steps": "trainer.ramp_steps",
}


@dataclass(frozen=True)
class Cursor:
    """The next row to read in a phase, and the rows that are never read."""

    phase: int
    position: int  # of the next row in the endless sequence of the phase
    skipped: tuple[Span, ...]  # sorted, without overlaps
    identity: Identity

    def skip(self, start: int, stop: int) -> "Cursor":
        """Return the same position, with rows `start` up to `stop` added to `skipped`."""
        return replace(self, skipped=merge_spans((*self.skipped, (start, stop))))

    def as_json(self) -> dict[str, Any]:
        """Return the cursor for state.json of a checkpoint."""
        return asdict(self)

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> Self:
        """Read the cursor from state.json of a checkpoint."""
        skipped = tuple((start, stop) for start, stop in state["skipped"])
        return cls(state["phase"], state["position"], skipped, Identity(**state["identity"]))


def merge_spans(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Return the union of the spans, sorted, with touching spans merged."""
    merged: list[Span] = []
    for span in sorted(spans):
        if merged and span[0] <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], span[1]))
        else:
            merged.append(span)
    return tuple(merged)


def check(cursor: Cursor, identity: Identity, where: str) -> None:
    """Raise `SesameError` with every difference if the cursor belongs to other data.

    `where` names the checkpoint in the message.
    """
    differences = [
        f"{NAMES[item.name]} {getattr(cursor.identity, item.name)} → {getattr(identity, item.name)}"
        for item in fields(Identity)
        if getattr(cursor.identity, item.name) != getattr(identity, item.name)
    ]
    if differences:
        raise SesameError(
            f"{where}: was made with other data ({'; '.join(differences)}); restore these, or "
            "start a new run from it with init.source"
        )


def next_spans(position: int, count: int, skipped: Sequence[Span]) -> list[Span]:
    """Return spans of the next `count` rows from `position` on, without those in `skipped`.

    `skipped` must be sorted.
    """
    spans: list[Span] = []
    for start, stop in skipped:
        if stop <= position:
            continue
        end = min(start, position + count)
        if end > position:
            spans.append((position, end))
            count -= end - position
        if count == 0:
            return spans
        position = stop
    return [*spans, (position, position + count)]


def cut_spans(spans: Sequence[Span], first: int, last: int) -> list[Span]:
    """Return the spans of entries `first` up to `last` (excluded), counting rows across `spans`."""
    cut: list[Span] = []
    before = 0
    for start, stop in spans:
        low, high = max(first - before, 0), min(last - before, stop - start)
        if low < high:
            cut.append((start + low, start + high))
        before += stop - start
    return cut
