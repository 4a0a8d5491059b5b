"""What encoders have in common whose units are words: texts are cut into words and numbered."""

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from data_prep.words import split_words
from pipeline.encoders.interface import (
    EncodedInputs,
    Encoder,
    Words,
    kept_lengths,
    offsets_of,
    runs,
)


class WordEncoder(Encoder):
    """An encoder that reads words as they are; nothing frames them."""

    @abstractmethod
    def number(self, words: Sequence[str]) -> NDArray[np.int32]:
        """The tokens of words."""

    def encode_texts(self, inputs: Sequence[tuple[str, ...]], max_length: int) -> EncodedInputs:
        """The words of one or two sentences."""
        return self._encode([sentences_as_words(texts) for texts in inputs], max_length)

    def encode_words(self, inputs: Sequence[Words], max_length: int) -> EncodedInputs:
        """Words as they are given."""
        return self._encode([(words,) for words in inputs], max_length)

    def encode_word_pairs(
        self, inputs: Sequence[tuple[Words, Words]], max_length: int
    ) -> EncodedInputs:
        """The words of both sentences."""
        return self._encode(inputs, max_length)

    def _encode(self, inputs: Sequence[tuple[Words, ...]], max_length: int) -> EncodedInputs:
        words: list[str] = []
        lengths, second = [], []
        cut = 0
        for parts in inputs:
            given = [len(part) for part in parts]
            kept = kept_lengths(given, max_length)
            for part, length in zip(parts, kept, strict=True):
                words += part[:length]
            lengths.append(sum(kept))
            second.append(kept[0])
            cut += kept != given
        offsets = offsets_of(lengths)
        positions = runs(offsets[:-1], np.diff(offsets))[1]
        return EncodedInputs(
            self.number(words), offsets, np.array(second, np.int64), positions, offsets, cut
        )


def sentences_as_words(texts: Sequence[str]) -> tuple[Words, ...]:
    """Sentences cut into words; one without any has an empty word, so that it has a unit."""
    return tuple(split_words(text)[0] or ("",) for text in texts)
