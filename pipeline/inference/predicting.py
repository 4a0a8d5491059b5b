"""Predict the items of a file: in batches, in order, going on where an interrupted run stopped.

Writes one JSON line per item to `<output>.part`, and renames it when all are there. Beside it,
`<output>.part.json` says which model and input it belongs to.
"""

import hashlib
import json
import os
import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from data_prep.errors import UsageError
from data_prep.files import read_json_object, write_atomically
from pipeline.inference.items import STANDARD_INPUT, read_items
from pipeline.inference.lines import Line
from pipeline.inference.models import BATCH_ITEMS, FinetunedModel, Item
from pipeline.inference.results import Result, as_json
from pipeline.store.models import FILE
from pipeline.tasks.examples import Example

SHOWN_FAULTS = 5
BATCH_CHARACTERS = 1 << 20  # bounds memory where items are whole documents


@dataclass
class Tally:
    """Items answered, and lines with a fault."""

    items: int = 0
    skipped: int = 0  # answered by an earlier, interrupted run
    cut: int = 0  # items that were truncated, without those of an earlier run
    faults: int = 0
    first_faults: list[tuple[int, str]] = field(default_factory=list)  # line number, fault

    def note(self, line: Line) -> None:
        """Count the line if it has a fault; the first SHOWN_FAULTS are kept."""
        if line.item is None:
            self.faults += 1
            if len(self.first_faults) < SHOWN_FAULTS:
                self.first_faults.append((line.number, line.fault))


def predict_file(model: FinetunedModel, source: str, output: Path) -> Tally:
    """Write the answers to a file; return the counts.

    Goes on with `<output>.part` if it belongs to the same model and input. Raises UsageError if it
    belongs to others, or to standard input, of which nothing tells that it is the same again. Only
    one process at a time may write an output: see `store.lease`.
    """
    partial = output.with_name(f"{output.name}.part")
    about = output.with_name(f"{partial.name}.json")
    identity = _identity(model, source)
    done = 0
    if partial.exists():
        if read_json_object(about) != identity:
            raise UsageError(
                f"output={output}: {partial} belongs to another model or input; remove it, or "
                "choose another output"
            )
        done = _keep_whole_lines(partial)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(about, json.dumps(identity))
    with partial.open("ab") as sink:
        tally = predict_lines(model, read_items(source, model), sink, done)
        sink.flush()
        os.fsync(sink.fileno())
    os.replace(partial, output)
    about.unlink()
    return tally


def predict_lines(
    model: FinetunedModel, lines: Iterable[Line], sink: BinaryIO, done: int = 0
) -> Tally:
    """Write a JSON line per item to `sink`; the first `done` items are passed over."""
    tally = Tally(skipped=done)
    rest = iter(lines)
    for line in islice(rest, done):
        tally.note(line)
    batches: deque[list[Line]] = deque()  # whose answers are not written yet

    def asked() -> Iterator[list[Item]]:
        while batch := list(_next_batch(rest)):
            batches.append(batch)
            yield [line.item for line in batch if line.item is not None]

    for answered in model.answers(asked()):
        tally.cut += answered.cut
        for answer in _answers(batches.popleft(), answered.results, tally):
            sink.write(json.dumps(answer, ensure_ascii=False).encode() + b"\n")
        sink.flush()
    return tally


def _next_batch(lines: Iterator[Line]) -> Iterator[Line]:
    """Yield lines up to the limits of a batch; at least one, however long it is."""
    characters = 0
    for line in islice(lines, BATCH_ITEMS):
        yield line
        characters += _length(line.item)
        if characters >= BATCH_CHARACTERS:
            return


def _length(item: object) -> int:
    """Return the characters of an item."""
    if isinstance(item, str):
        return len(item)
    parts = item.texts if isinstance(item, Example) else item
    return sum(map(_length, parts)) if isinstance(parts, list | tuple) else 0


def _answers(batch: list[Line], results: list[Result], tally: Tally) -> Iterator[dict[str, object]]:
    """Yield the JSON object of every line; `results` are those of lines without a fault."""
    rest = iter(results)
    for line in batch:
        tally.items += 1
        tally.note(line)
        named = {} if line.id is None else {"id": line.id}
        if line.item is None:
            yield {"line": line.number, **named, "error": line.fault}
        else:
            yield {"line": line.number, **named, **as_json(next(rest))}


def model_identity(model: FinetunedModel) -> str:
    """Return what tells a model from others: its settings, and its files as they lie there."""
    stated = hashlib.sha256((model.folder / FILE).read_bytes())
    for path in sorted(path for path in model.folder.rglob("*") if path.is_file()):
        status = path.stat()
        stated.update(f"{path.name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return stated.hexdigest()


def _identity(model: FinetunedModel, source: str) -> dict[str, object]:
    """Return what an interrupted output must agree with."""
    own = model_identity(model)
    if source == STANDARD_INPUT:
        return {"model": own, "input": uuid.uuid4().hex}
    found = os.stat(source) if os.path.exists(source) else None
    size = [found.st_size, found.st_mtime_ns] if found else []
    return {"model": own, "input": [os.path.basename(source), *size]}


def _keep_whole_lines(path: Path) -> int:
    """Cut a last line that was not finished; return the number of lines."""
    with path.open("r+b") as stream:
        lines = end = 0
        for line in stream:
            if not line.endswith(b"\n"):
                break
            lines, end = lines + 1, end + len(line)
        stream.truncate(end)
    return lines
