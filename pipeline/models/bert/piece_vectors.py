"""Computes initial token embeddings from word vectors (`init.vectors`).

A few minutes of skip-gram group words by their contexts; a BERT with random weights needs hours to
learn that. A token that is a whole word gets the vector of the word. A token that is only part of
words gets the weighted mean of their vectors; frequent words weigh more. Other tokens stay random.

V tokens, P of them with a vector, W words, D width
"""

import numpy as np
from numpy.typing import NDArray

from data_prep.errors import UsageError
from data_prep.tokenizers import Tokenizer
from data_prep.vectors.table import VectorTable

Floats = NDArray[np.float32]


def piece_vectors(
    table: VectorTable, tokenizer: Tokenizer, width: int, std: float
) -> tuple[NDArray[np.int64], Floats]:
    """Return the ids of tokens that occur in words, [P], and their vectors, [P, D].

    The vectors have mean zero and standard deviation `std`. Raises `UsageError` if the table is not
    `width` wide.
    """
    if table.vectors.shape[1] != width:
        raise UsageError(
            f"init.vectors: the word vectors are {table.vectors.shape[1]} wide, but model.hidden="
            f"{width}; leave vectors.source unset to train vectors of that width"
        )
    encoded = tokenizer.encode_words(table.words)
    counts_W = np.diff(encoded.offsets)
    owners = np.repeat(np.arange(len(counts_W)), counts_W)
    # Words are sorted by frequency, which is roughly proportional to 1 / rank (Zipf). The factor
    # 1e6 makes a whole word's own vector outweigh all words that contain it.
    weights_W = np.where(counts_W == 1, 1e6, 1.0) / (1 + np.arange(len(counts_W)))
    sums_VD = np.zeros((tokenizer.size, width))
    np.add.at(sums_VD, encoded.ids, weights_W[owners, None] * table.vectors[owners])
    total_V = np.bincount(encoded.ids, weights_W[owners], tokenizer.size)
    total_V[[tokenizer.unk, tokenizer.cls, tokenizer.sep]] = 0
    pieces_P = np.flatnonzero(total_V)
    vectors_PD = sums_VD[pieces_P] / total_V[pieces_P, None]
    vectors_PD -= vectors_PD.mean(0)
    return pieces_P, (vectors_PD * (std / vectors_PD.std())).astype(np.float32)
