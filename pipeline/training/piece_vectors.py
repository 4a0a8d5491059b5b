"""Embeddings of pieces to start from, made of word vectors (`init.vectors`).

A few minutes of skip-gram place words by the company they keep, which a young BERT would take hours
to find. A piece that is a word has that word's vector; one that is only part of words has the mean
of theirs, the frequent ones counting more; others stay random.

V pieces, P of them with a vector, W words, D width
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
    """The pieces that words tell of and their vectors, centred, with a deviation of `std`."""
    if table.vectors.shape[1] != width:
        raise UsageError(
            f"init.vectors: they are {table.vectors.shape[1]} wide, model.hidden={width}; leave "
            "vectors.source unset to train fitting ones"
        )
    encoded = tokenizer.encode_words(table.words)
    counts_W = np.diff(encoded.offsets)
    owners = np.repeat(np.arange(len(counts_W)), counts_W)
    # Words come by frequency, which falls about as one over the rank (Zipf). A whole word's own
    # vector outweighs all words that it is part of.
    weights_W = np.where(counts_W == 1, 1e6, 1.0) / (1 + np.arange(len(counts_W)))
    sums_VD = np.zeros((tokenizer.size, width))
    np.add.at(sums_VD, encoded.ids, weights_W[owners, None] * table.vectors[owners])
    total_V = np.bincount(encoded.ids, weights_W[owners], tokenizer.size)
    total_V[[tokenizer.unk, tokenizer.cls, tokenizer.sep]] = 0
    pieces_P = np.flatnonzero(total_V)
    vectors_PD = sums_VD[pieces_P] / total_V[pieces_P, None]
    vectors_PD -= vectors_PD.mean(0)
    return pieces_P, (vectors_PD * (std / vectors_PD.std())).astype(np.float32)
