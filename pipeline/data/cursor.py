"""Where a run is in its data, what that data is, and how many rows each step takes.

The training module counts the cursor at optimizer steps and stores it in checkpoints; it never
asks the loader, which reads ahead.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

from data_prep.errors import SesameError, UsageError

Span = tuple[int, int]  # positions from, to (excluded)


@dataclass(frozen=True)
class BatchSchedule:
    """Rows of each optimizer step: a quarter, a half, three quarters of the ramp, then all."""

    global_batch_size: int
    ramp_steps: int = 0

    def size(self, step: int) -> int:
        """Rows of step `step`, over all ranks."""
        if step >= self.ramp_steps:
            return self.global_batch_size
        return self.global_batch_size // 4 * (1 + 3 * step // self.ramp_steps)

    def check(self, world: int) -> None:
        """Every step's rows must divide by the ranks."""
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
    """What a position means something in; each field with the name users know it by."""

    examples: str  # fingerprint of the examples' output: corpus, tokenizer, recipe
    shards: str  # ChunkStore.digest: every chunk's size and checksum
    seed: int
    shuffle_window: int
    global_batch_size: int
    ramp_steps: int


NAMES = {
    "examples": "the examples' fingerprint",
    "shards": "the checksum of their shard list",
    "seed": "trainer.seed",
    "shuffle_window": "trainer.shuffle_window",
    "global_batch_size": "trainer.global_batch_size",
    "ramp_steps": "trainer.ramp_steps",
}


@dataclass(frozen=True)
class Cursor:
    """The next position to read, in which phase, and the positions never to be read."""

    phase: int
    position: int
    skipped: tuple[Span, ...]
    identity: Identity

    def skip(self, start: int, stop: int) -> "Cursor":
        """The same place, with positions `start` to `stop` recorded as skipped."""
        return replace(self, skipped=merge_spans((*self.skipped, (start, stop))))

    def as_json(self) -> dict[str, Any]:
        """For the checkpoint's state."""
        return asdict(self)

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> Self:
        """From the checkpoint's state."""
        skipped = tuple((start, stop) for start, stop in state["skipped"])
        return cls(state["phase"], state["position"], skipped, Identity(**state["identity"]))


def merge_spans(spans: Sequence[Span]) -> tuple[Span, ...]:
    """The same positions in sorted spans that do not touch each other."""
    merged: list[Span] = []
    for span in sorted(spans):
        if merged and span[0] <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], span[1]))
        else:
            merged.append(span)
    return tuple(merged)


def check(cursor: Cursor, identity: Identity, where: str) -> None:
    """Refuse a cursor of other data, naming every difference; `where` names the checkpoint."""
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
    """The next `count` positions from `position` that are not skipped; `skipped` is sorted."""
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
    """Entries `first` to `last` (excluded) of the positions in `spans`."""
    cut: list[Span] = []
    before = 0
    for start, stop in spans:
        low, high = max(first - before, 0), min(last - before, stop - start)
        if low < high:
            cut.append((start + low, start + high))
        before += stop - start
    return cut
