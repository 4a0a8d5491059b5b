"""Mark tokens at which a word starts, or goes on, otherwise than the vocabulary says.

The vocabulary tells for most tokens whether they start a word ("▁", "##"). In scripts without
spaces only the text tells. There a token starts a word if one of the segmenter's words starts at
its first character. A *flip* is a token for which the two differ. Flips travel as the highest bit
of token ids until the rows are complete, so that whoever copies ids copies them too.
"""

import re
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from data_prep.text.segmentation import is_beside_spaceless, word_bounds

FLIP = 1 << 30  # in int32 ids
RUN = re.compile(r"\S+")


def with_flips(
    text: str, encoding: tokenizers.Encoding, starts_word: NDArray[np.bool_]
) -> list[int]:
    """Return the ids of an encoded text; flips have `FLIP` added.

    starts_word: for each token of the vocabulary, True if it starts a word.
    """
    bounds = {run.start() + bound for run in RUN.finditer(text) for bound in word_bounds(run[0])}
    marked = []
    before = 0  # end of the token before
    for index, (id, (start, end)) in enumerate(zip(encoding.ids, encoding.offsets, strict=True)):
        is_flip = (
            index > 0
            and is_beside_spaceless(text, start)
            and not text[start : start + 1].isspace()  # "Ġship" starts with the space
            and starts_word[id] != _is_start(text, start, before, bounds)
        )
        marked.append(id + FLIP if is_flip else id)
        before = end
    return marked


def _is_start(text: str, start: int, before: int, bounds: set[int]) -> bool:
    """Return True if a token at `start`, not the first one, starts a word.

    before: the end of the token before. It is beyond `start` if both are bytes of one character, or
    if that token is a "▁" that stands for no space.
    """
    if start == 0 or start < before:
        return False
    if text[start - 1].isspace():
        return before < start  # else the token before is the space, and starts the word
    return start in bounds


def compact(marked: NDArray[np.int32], vocab_size: int) -> NDArray[np.unsignedinteger[Any]]:
    """Return marked ids in the smallest type that has a bit for flips besides the ids."""
    dtype = np.dtype("<u2" if vocab_size <= 1 << 15 else "<u4")
    if marked.max(initial=0) < FLIP:
        return marked.astype(dtype)
    flips = (marked & FLIP != 0).astype(dtype) << (8 * dtype.itemsize - 1)
    return np.asarray((marked & ~FLIP).astype(dtype) | flips)


def split_compact(
    compacted: NDArray[np.unsignedinteger[Any]], dtype: str
) -> tuple[NDArray[np.unsignedinteger[Any]], NDArray[np.uint8] | None]:
    """Return the ids, in this type, and the flips (0 or 1) of compact marked ids; None if none."""
    bit = 8 * compacted.itemsize - 1
    if compacted.max(initial=0) >> bit == 0:
        return compacted.astype(dtype, copy=False), None
    ids = compacted & compacted.dtype.type((1 << bit) - 1)
    return ids.astype(dtype), (compacted >> bit).astype(np.uint8)
