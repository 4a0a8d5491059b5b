"""Base class of encoders whose units are words: splits texts into words and numbers them."""

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from data_prep.text.words import TextWords
from pipeline.encoders.inputs import (
    EncodedInputs,
    Words,
    kept_lengths,
    offsets_of,
    part_sizes,
    runs,
    truncated_inputs,
)
from pipeline.encoders.interface import Encoder


class WordEncoder(Encoder):
    """An encoder whose inputs are words only, without special units."""

    @abstractmethod
    def number(self, words: Sequence[str]) -> NDArray[np.int32]:
        """Return the token ids of words."""

    def encode_texts(self, inputs: Sequence[tuple[str, ...]], max_length: int) -> EncodedInputs:
        """Encode the words of one or two sentences."""
        return self.encode_words([sentences_as_words(texts) for texts in inputs], max_length)

    def encode_words(self, inputs: Sequence[tuple[Words, ...]], max_length: int) -> EncodedInputs:
        """Encode words as given."""
        sizes_EP = part_sizes(inputs)
        kept_EP = kept_lengths(sizes_EP, max_length)
        words = [
            word
            for parts, kept in zip(inputs, kept_EP.tolist(), strict=True)
            for part, length in zip(parts, kept, strict=True)
            for word in part[:length]
        ]
        offsets = offsets_of(kept_EP.sum(1))
        positions = runs(offsets[:-1], np.diff(offsets))[1]
        truncated = truncated_inputs(kept_EP, sizes_EP)
        numbers = self.number(words)
        return EncodedInputs(numbers, offsets, kept_EP[:, 0], positions, offsets, truncated)


def sentences_as_words(texts: Sequence[str]) -> tuple[Words, ...]:
    """Split sentences into words; a sentence without words gets one empty word, so one unit."""
    return tuple(TextWords.of(text) or ("",) for text in texts)
