"""Held-out examples of one source or language, for its own loss.

The examples stage lists the held-out documents of each (`heldout-strata.json`) if the corpus names
sources or has several languages. An example counts for its first segment; the second is of the same
source and language. A packed row may hold examples of several, so its examples become rows of their
own: attention never crosses them.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from data_prep.examples.chunks import Chunk, ChunkStore, concatenate
from data_prep.examples.text import HELD_OUT_STRATA
from pipeline.data.batch import Batch, collate


def read_strata(store: ChunkStore) -> dict[str, list[int]]:
    """Return the held-out documents by "source/<name>" and "language/<code>"; empty without."""
    path = store.folder / HELD_OUT_STRATA
    listed = json.loads(path.read_text()) if path.exists() else {}
    return {
        f"{by.removeprefix('by_')}/{name}": documents
        for by, names in listed.items()
        for name, documents in names.items()
    }


class Stratum:
    """Iterates over this rank's batches of the examples of some documents.

    Only the first `rows` rows of the store are read, as for the whole held-out loss. Every rank
    gets an equal number of batches.
    """

    def __init__(
        self,
        store: ChunkStore,
        documents: Sequence[int],
        *,
        rows: int,
        micro_batch_size: int,
        rank: int = 0,
        world: int = 1,
    ):
        self._rank, self._world = rank, world
        self._examples = _examples_of(store, documents, rows)
        count = self._examples.rows if self._examples else 0
        self._batches = -(-count // (micro_batch_size * world))

    def __len__(self) -> int:
        return self._batches

    def __iter__(self) -> Iterator[Batch]:
        if self._examples is None:
            return
        parts = self._batches * self._world
        for batch in range(self._batches):
            part = batch * self._world + self._rank
            start, stop = (each * self._examples.rows // parts for each in (part, part + 1))
            yield collate(self._examples.between(start, stop))


def _examples_of(store: ChunkStore, documents: Sequence[int], rows: int) -> Chunk | None:
    """Return the examples of these documents as rows of one example each; None if there is none."""
    found = []
    for number in range(store.chunks):
        left = rows - int(store.first_row[number])
        if left <= 0:
            break
        chunk = store.read(number)
        chunk = chunk.between(0, min(left, chunk.rows))
        chosen = np.flatnonzero(np.isin(chunk.documents[:, 0], documents))
        if len(chosen):
            single = np.arange(chunk.examples + 1, dtype=np.int32)
            found.append(replace(chunk, row_examples=single).take(chosen))
    return concatenate(found) if found else None
