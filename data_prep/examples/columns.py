"""Rows of training examples as columns, and what may be done with them in memory.

A row holds one example, or several when packed. Every column is one flat array; offset columns say
where rows, examples and predictions begin. `data_prep.examples.chunks` keeps them in files.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

STATIC_COLUMNS = ("target", "target_examples", "input")
DTYPES = {
    "row_examples": "<i4",
    "example_tokens": "<i4",
    "second": "<u2",
    "label": "|i1",
    "coin": "|i1",
    "documents": "<u4",
    "target": "<u2",
    "target_examples": "<i4",
}  # of all columns but tokens and input, whose type depends on the vocabulary


@dataclass(frozen=True)
class Chunk:
    """Rows as columns: R rows, E examples, T pieces, M predictions (static masks only)."""

    tokens: Array  # [T] unmasked ids: [CLS] a... [SEP] b... [SEP], example after example
    row_examples: Array  # [R+1] where each row's examples begin
    example_tokens: Array  # [E+1] where each example's pieces begin
    second: Array  # [E] position in the example where segment 1 starts; its length if none
    label: Array  # [E] 0 next or in order, 1 random or swapped, -1 no pair
    coin: Array  # [E] 1 if a coin decided the label, 0 if it was forced
    documents: Array  # [E, 2] document numbers of the segments
    target: Array | None = None  # [M] position in the example that is predicted
    target_examples: Array | None = None  # [E+1] where each example's predictions begin
    input: Array | None = None  # [M] the id that stands at the target instead

    @property
    def rows(self) -> int:
        return len(self.row_examples) - 1

    @property
    def examples(self) -> int:
        return len(self.example_tokens) - 1

    def columns(self) -> dict[str, Array]:
        """The arrays that are there, by name, in file order."""
        every = {name: getattr(self, name) for name in COLUMNS}
        return {name: array for name, array in every.items() if array is not None}

    def between(self, start: int, stop: int) -> "Chunk":
        """Rows `start` to `stop` (excluded), without copying pieces."""
        first, last = int(self.row_examples[start]), int(self.row_examples[stop])
        begin, end = int(self.example_tokens[first]), int(self.example_tokens[last])
        masks: dict[str, Array] = {}
        if self.target is not None and self.target_examples is not None and self.input is not None:
            low, high = int(self.target_examples[first]), int(self.target_examples[last])
            masks = {
                "target": self.target[low:high],
                "target_examples": self.target_examples[first : last + 1] - np.int32(low),
                "input": self.input[low:high],
            }
        return Chunk(
            tokens=self.tokens[begin:end],
            row_examples=self.row_examples[start : stop + 1] - np.int32(first),
            example_tokens=self.example_tokens[first : last + 1] - np.int32(begin),
            second=self.second[first:last],
            label=self.label[first:last],
            coin=self.coin[first:last],
            documents=self.documents[first:last],
            **masks,
        )

    def take(self, rows: Array) -> "Chunk":
        """The given rows, in the given order."""
        examples, row_examples = _gather(self.row_examples, rows)
        pieces, example_tokens = _gather(self.example_tokens, examples)
        masks: dict[str, Array] = {}
        if self.target is not None and self.target_examples is not None and self.input is not None:
            targets, target_examples = _gather(self.target_examples, examples)
            masks = {
                "target": self.target[targets],
                "target_examples": target_examples,
                "input": self.input[targets],
            }
        return Chunk(
            tokens=self.tokens[pieces],
            row_examples=row_examples,
            example_tokens=example_tokens,
            second=self.second[examples],
            label=self.label[examples],
            coin=self.coin[examples],
            documents=self.documents[examples],
            **masks,
        )

    def problem(self, vocab_size: int) -> str | None:
        """What makes these arrays no chunk, or None; a sound chunk cannot lead an index astray."""
        for name, array in self.columns().items():
            wanted = DTYPES.get(name) or token_dtype(vocab_size)
            if array.dtype.str != wanted:
                return f"column {name} has type {array.dtype.str}, not {wanted}"
            if array.ndim != (2 if name == "documents" else 1):
                return f"column {name} has {array.ndim} dimensions"
        if len(self.row_examples) == 0 or len(self.example_tokens) == 0:
            return "an offset column is empty"
        examples = self.examples
        if not len(self.second) == len(self.label) == len(self.coin) == examples:
            return "columns second, label and coin do not match the number of examples"
        if self.documents.shape != (examples, 2):
            return f"column documents has shape {self.documents.shape}, not {(examples, 2)}"
        if not _are_offsets(self.row_examples, examples, least=1):
            return "column row_examples does not cut the examples into rows"
        if not _are_offsets(self.example_tokens, len(self.tokens), least=1):
            return "column example_tokens does not cut the pieces into examples"
        if self.tokens.max(initial=0) >= vocab_size:
            return f"column tokens has ids beyond the {vocab_size} of its vocabulary"
        lengths = np.diff(self.example_tokens)
        if (self.second > lengths).any():
            return "column second points past an example's end"
        given = [getattr(self, name) is not None for name in STATIC_COLUMNS]
        if any(given) and not all(given):
            return f"only some of the columns {', '.join(STATIC_COLUMNS)} are there"
        if self.target is None or self.target_examples is None or self.input is None:
            return None
        if len(self.target) != len(self.input) or len(self.target_examples) != examples + 1:
            return "columns target, target_examples and input do not match"
        if not _are_offsets(self.target_examples, len(self.target), least=0):
            return "column target_examples does not cut the predictions into examples"
        if (self.target >= np.repeat(lengths, np.diff(self.target_examples))).any():
            return "column target points past an example's end"
        if self.input.max(initial=0) >= vocab_size:
            return f"column input has ids beyond the {vocab_size} of its vocabulary"
        return None


COLUMNS = tuple(item.name for item in fields(Chunk))


def concatenate(chunks: Sequence[Chunk]) -> Chunk:
    """The rows of all chunks, one after another."""
    if len(chunks) == 1:
        return chunks[0]
    joined = {}
    for name in chunks[0].columns():
        arrays = [getattr(chunk, name) for chunk in chunks]
        is_offsets = name in ("row_examples", "example_tokens", "target_examples")
        joined[name] = _join_offsets(arrays) if is_offsets else np.concatenate(arrays)
    return Chunk(**joined)


def token_dtype(vocab_size: int) -> str:
    """The type ids are stored in."""
    return "<u2" if vocab_size <= 1 << 16 else "<u4"


def _are_offsets(offsets: Array, end: int, least: int) -> bool:
    steps = offsets[1:] - offsets[:-1]
    return bool(offsets[0] == 0 and offsets[-1] == end and (steps >= least).all())


def _join_offsets(arrays: Sequence[Array]) -> Array:
    bases = np.cumsum([0] + [int(array[-1]) for array in arrays])
    assert bases[-1] < 1 << 31, "more pieces together than an offset can count"
    parts = [array[1:] + np.int32(base) for array, base in zip(arrays, bases, strict=False)]
    return np.concatenate([np.zeros(1, np.int32), *parts])


def _gather(offsets: Array, chosen: Array) -> tuple[Array, Array]:
    """Indices of everything inside the chosen ranges, and the offsets of these ranges together."""
    starts = offsets[chosen]
    lengths = offsets[chosen + 1] - starts
    new_offsets = np.zeros(len(chosen) + 1, np.int32)
    np.cumsum(lengths, out=new_offsets[1:])
    shifts = np.repeat(starts.astype(np.int64) - new_offsets[:-1], lengths)
    return np.arange(len(shifts)) + shifts, new_offsets
