"""Static word vectors as an encoder: a word has the same vector in every sentence.

Only the vectors of words seen so far are held in memory. `finetune.mode=full` trains them. A word
that is not in the table is looked up in lower case. Unknown words have a vector of zeros, which
is not trained.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from data_prep.vectors.table import VectorTable
from pipeline.encoders.inputs import (
    InputBatch,
)
from pipeline.encoders.words import WordEncoder

UNKNOWN = 0  # token id of all words without a vector


class StaticEncoder(WordEncoder):
    """A table of word vectors."""

    states = 1
    grows = True

    def __init__(self, table: VectorTable) -> None:
        super().__init__()
        self.hidden = table.vectors.shape[1]
        self._table = table
        self._rows = {word: row for row, word in enumerate(table.words)}
        self._tokens: dict[int, int] = {}  # row of the table to token
        self.vectors = nn.Parameter(torch.zeros(1, self.hidden))

    def knows(self, word: str) -> bool:
        """Return True if a word has a vector."""
        return self._row(word) is not None

    def number(self, words: Sequence[str]) -> NDArray[np.int32]:
        """Return the token ids of words; load the vectors of new words."""
        found = {word: self._row(word) for word in set(words)}
        new = sorted({row for row in found.values() if row is not None} - self._tokens.keys())
        self._tokens |= {row: len(self._tokens) + 1 + n for n, row in enumerate(new)}
        fetched = torch.from_numpy(np.array(self._table.vectors[new])).to(self.vectors.device)
        self.vectors.data = torch.cat([self.vectors.data, fetched])
        tokens = {
            word: UNKNOWN if row is None else self._tokens[row] for word, row in found.items()
        }
        return np.array([tokens[word] for word in words], np.int32)

    def save(self, folder: Path) -> None:
        """Write the table; rows that were trained have their new vectors."""
        vectors = np.array(self._table.vectors)
        rows = np.array(list(self._tokens), np.int64)
        tokens = np.array(list(self._tokens.values()), np.int64)
        vectors[rows] = self.vectors.detach().cpu().numpy()[tokens]
        VectorTable(self._table.words, vectors).write(folder)

    def forward(self, batch: InputBatch) -> list[Tensor]:
        """Return the vectors as the only layer."""
        return [nn.functional.embedding(batch.tokens_N, self.vectors, padding_idx=UNKNOWN)]

    def _row(self, word: str) -> int | None:
        return self._rows.get(word, self._rows.get(word.lower()))
