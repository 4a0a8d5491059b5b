"""Rows of training examples in memory, as columns.

A row holds one example, or several when packed. Every column is one flat array; offset columns
give the start of each row, example and prediction. `chunks` stores them in files.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

STATIC_COLUMNS = ("target", "target_examples", "input")
WORD_FLIPS = "word_flips"
DTYPES = {
    "row_examples": "<i4",
    "example_tokens": "<i4",
    "second": "<u2",
    "label": "|i1",
    "coin": "|i1",
    "documents": "<u4",
    "target": "<u2",
    "target_examples": "<i4",
    WORD_FLIPS: "|u1",
}  # of all columns but tokens and input, whose type depends on the vocabulary


@dataclass(frozen=True)
class Chunk:
    """Rows as columns: R rows, E examples, T tokens, M predictions.

    `target`, `target_examples` and `input` are there with stored (static) masks only; `word_flips`
    is there if it has a 1.
    """

    tokens: Array  # [T] unmasked ids: [CLS] A... [SEP] B... [SEP], example after example
    row_examples: Array  # [R+1] offsets of each row's examples
    example_tokens: Array  # [E+1] offsets of each example's tokens
    second: Array  # [E] position in the example where segment B starts; its length if none
    label: Array  # [E] 0 next or in order, 1 random or swapped, -1 no pair
    coin: Array  # [E] 1 if a random draw decided the label, 0 if it was forced
    documents: Array  # [E, 2] document numbers of the segments
    target: Array | None = None  # [M] predicted position in the example
    target_examples: Array | None = None  # [E+1] offsets of each example's predictions
    input: Array | None = None  # [M] id that the model sees at the target
    # [T] 1 if the token starts a word against `Vocabulary.starts_word`, or continues one against it
    word_flips: Array | None = None

    @property
    def rows(self) -> int:
        return len(self.row_examples) - 1

    @property
    def examples(self) -> int:
        return len(self.example_tokens) - 1

    def columns(self) -> dict[str, Array]:
        """Return the columns that are present, by name, in file order."""
        every = {name: getattr(self, name) for name in COLUMNS}
        return {name: array for name, array in every.items() if array is not None}

    def between(self, start: int, stop: int) -> "Chunk":
        """Return rows [start, stop); tokens are views, offsets are copied."""
        first, last = int(self.row_examples[start]), int(self.row_examples[stop])
        begin, end = int(self.example_tokens[first]), int(self.example_tokens[last])
        masks: dict[str, Array] = {}
        if self.word_flips is not None and self.word_flips[begin:end].any():
            masks[WORD_FLIPS] = self.word_flips[begin:end]
        if self.target is not None and self.target_examples is not None and self.input is not None:
            low, high = int(self.target_examples[first]), int(self.target_examples[last])
            masks |= {
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
        """Return a copy of these rows, in this order; `rows` is an array of row indices."""
        examples, row_examples = gather_ranges(self.row_examples, rows)
        pieces, example_tokens = gather_ranges(self.example_tokens, examples)
        masks: dict[str, Array] = {}
        if self.word_flips is not None and self.word_flips[pieces].any():
            masks[WORD_FLIPS] = self.word_flips[pieces]
        if self.target is not None and self.target_examples is not None and self.input is not None:
            targets, target_examples = gather_ranges(self.target_examples, examples)
            masks |= {
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
        """Return a description of the first inconsistency of the columns, or None if valid.

        In a valid chunk every offset, position and id is in range.
        """
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
            return "column row_examples does not divide the examples into rows"
        if not _are_offsets(self.example_tokens, len(self.tokens), least=1):
            return "column example_tokens does not divide the tokens into examples"
        if self.tokens.max(initial=0) >= vocab_size:
            return f"column tokens has ids beyond the {vocab_size} of its vocabulary"
        lengths = np.diff(self.example_tokens)
        if (self.second > lengths).any():
            return "column second points past an example's end"
        if self.word_flips is not None and len(self.word_flips) != len(self.tokens):
            return f"column {WORD_FLIPS} does not match the number of tokens"
        given = [getattr(self, name) is not None for name in STATIC_COLUMNS]
        if any(given) and not all(given):
            return f"only some of the columns {', '.join(STATIC_COLUMNS)} are present"
        if self.target is None or self.target_examples is None or self.input is None:
            return None
        if len(self.target) != len(self.input) or len(self.target_examples) != examples + 1:
            return "columns target, target_examples and input do not match"
        if not _are_offsets(self.target_examples, len(self.target), least=0):
            return "column target_examples does not divide the predictions into examples"
        if (self.target >= np.repeat(lengths, np.diff(self.target_examples))).any():
            return "column target points past an example's end"
        if self.input.max(initial=0) >= vocab_size:
            return f"column input has ids beyond the {vocab_size} of its vocabulary"
        return None


COLUMNS = tuple(item.name for item in fields(Chunk))
ALWAYS_COLUMNS = tuple(name for name in COLUMNS if name not in (*STATIC_COLUMNS, WORD_FLIPS))


def concatenate(chunks: Sequence[Chunk]) -> Chunk:
    """Concatenate the rows of all chunks; all must have the same columns but `word_flips`."""
    if len(chunks) == 1:
        return chunks[0]
    joined = {}
    if any(chunk.word_flips is not None for chunk in chunks):
        joined[WORD_FLIPS] = np.concatenate([_flips(chunk) for chunk in chunks])
    for name in chunks[0].columns().keys() - {WORD_FLIPS}:
        arrays = [getattr(chunk, name) for chunk in chunks]
        is_offsets = name in ("row_examples", "example_tokens", "target_examples")
        joined[name] = _join_offsets(arrays) if is_offsets else np.concatenate(arrays)
    return Chunk(**joined)


class ChunkSizes(NamedTuple):
    """The sizes of a chunk: what the bytes of its columns follow from."""

    rows: int
    examples: int
    tokens: int
    predictions: int
    flips: int  # tokens with a bit in `word_flips`


def column_bytes(sizes: ChunkSizes, vocab_size: int, static: bool) -> dict[str, int]:
    """Return the bytes of each stored column of a chunk with these sizes."""
    token = np.dtype(token_dtype(vocab_size)).itemsize
    columns = {
        "tokens": sizes.tokens * token,
        "row_examples": (sizes.rows + 1) * 4,
        "example_tokens": (sizes.examples + 1) * 4,
        "second": sizes.examples * 2,
        "label": sizes.examples,
        "coin": sizes.examples,
        "documents": sizes.examples * 2 * 4,
        WORD_FLIPS: (sizes.tokens + 7) // 8,  # one bit per token
        "target": sizes.predictions * 2,
        "target_examples": (sizes.examples + 1) * 4,
        "input": sizes.predictions * token,
    }
    absent = {*(() if static else STATIC_COLUMNS), *(() if sizes.flips else (WORD_FLIPS,))}
    return {name: size for name, size in columns.items() if name not in absent}


def _flips(chunk: Chunk) -> Array:
    return np.zeros(len(chunk.tokens), np.uint8) if chunk.word_flips is None else chunk.word_flips


def token_dtype(vocab_size: int) -> str:
    """Return the dtype in which ids are stored: two bytes if the vocabulary fits, else four."""
    return "<u2" if vocab_size <= 1 << 16 else "<u4"


def _are_offsets(offsets: Array, end: int, least: int) -> bool:
    steps = offsets[1:] - offsets[:-1]
    return bool(offsets[0] == 0 and offsets[-1] == end and (steps >= least).all())


def _join_offsets(arrays: Sequence[Array]) -> Array:
    bases = np.cumsum([0] + [int(array[-1]) for array in arrays])
    assert bases[-1] < 1 << 31, "more pieces together than an offset can count"
    parts = [array[1:] + np.int32(base) for array, base in zip(arrays, bases, strict=False)]
    return np.concatenate([np.zeros(1, np.int32), *parts])


def gather_ranges(offsets: Array, chosen: Array) -> tuple[Array, Array]:
    """Return the indices of all elements in the chosen ranges, and the ranges' new offsets."""
    starts = offsets[chosen]
    lengths = offsets[chosen + 1] - starts
    new_offsets = np.zeros(len(chosen) + 1, np.int32)
    np.cumsum(lengths, out=new_offsets[1:])
    shifts = np.repeat(starts.astype(np.int64) - new_offsets[:-1], lengths)
    return np.arange(len(shifts)) + shifts, new_offsets
