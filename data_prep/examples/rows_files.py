"""Rows files: finished rows on their way to the shard files.

A rows folder holds
    rows-<number>.npz   the columns of a `Chunk`
    sizes-<number>.npy  `ChunkSizes` but the rows, before each row and of all rows
    counts.json         counts, and under `files` the rows of each file
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_prep.arrays import save_array
from data_prep.examples.columns import Chunk


@dataclass(frozen=True)
class RowsFile:
    """One rows file: its folder, number and rows."""

    folder: Path
    number: int
    rows: int

    def read(self) -> Chunk:
        """Read its rows."""
        with np.load(self.folder / f"rows-{self.number:05d}.npz") as columns:
            return Chunk(**columns)

    def sizes(self) -> NDArray[np.int64]:
        """Return the `ChunkSizes` of what is before each row [rows+1, 5]."""
        stored = np.load(self.folder / f"sizes-{self.number:05d}.npy")
        return np.column_stack([np.arange(len(stored)), stored])


def write_rows_file(chunk: Chunk, folder: Path, number: int = 0) -> None:
    """Write rows as file `number` of a rows folder."""
    np.savez(folder / f"rows-{number:05d}.npz", allow_pickle=False, **chunk.columns())
    first_tokens = chunk.example_tokens[chunk.row_examples]
    predictions = (
        np.zeros_like(first_tokens)
        if chunk.target_examples is None
        else chunk.target_examples[chunk.row_examples]
    )
    flips = (
        np.zeros_like(first_tokens)
        if chunk.word_flips is None
        else np.append(0, np.cumsum(chunk.word_flips, dtype=np.int64))[first_tokens]
    )
    sizes = np.column_stack([chunk.row_examples, first_tokens, predictions, flips])
    save_array(folder / f"sizes-{number:05d}.npy", sizes.astype(np.int32))


def write_counts(folder: Path, counts: dict[str, Any], rows: Sequence[int]) -> None:
    """Write a rows folder's counts; `rows` has the rows of each of its files."""
    (folder / "counts.json").write_text(json.dumps({**counts, "files": list(rows)}))


def read_counts(folder: Path) -> dict[str, Any]:
    """Read the counts of a rows folder or of a text folder."""
    counts: dict[str, Any] = json.loads((folder / "counts.json").read_text())
    return counts


def list_rows_files(folders: Iterable[Path]) -> list[RowsFile]:
    """List the rows files of these folders, in order."""
    return [
        RowsFile(folder, number, rows)
        for folder in folders
        for number, rows in enumerate(read_counts(folder)["files"])
    ]
