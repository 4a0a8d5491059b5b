"""Encode the two sentences of a pair separately, with an encoder that could read them together.

This is the method of Sentence-BERT (Reimers and Gurevych 2019): a head compares two independent
vectors. It needs fewer labels than joint encoding, where the encoder must first learn what to
compare. Each sentence may use the whole maximum length.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.encoders.inputs import (
    EncodedInputs,
    InputBatch,
    Words,
)
from pipeline.encoders.interface import Encoder


class SeparateSentences(Encoder):
    """Wraps an encoder so that the sentences of a pair do not see each other."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.hidden, self.states, self.longest = encoder.hidden, encoder.states, encoder.longest
        self.grows = encoder.grows

    def encode_texts(self, inputs: Sequence[tuple[str, ...]], max_length: int) -> EncodedInputs:
        """Encode both sentences of each pair, each with its own special units."""
        alone = self.encoder.encode_texts([(text,) for pair in inputs for text in pair], max_length)
        return replace(
            alone,
            offsets=alone.offsets[::2],
            second=alone.lengths[::2],
            word_offsets=alone.word_offsets[::2],
            truncated=alone.truncated.reshape(-1, 2).sum(1),
        )

    def encode_words(self, inputs: Sequence[tuple[Words, ...]], max_length: int) -> EncodedInputs:
        """Encode words as the wrapped encoder does."""
        return self.encoder.encode_words(inputs, max_length)

    def forward(self, batch: InputBatch) -> list[Tensor]:
        """Return the hidden states of first and second sentences, pair after pair."""
        lengths = np.stack([batch.second, batch.lengths - batch.second], 1).ravel()
        second_N = torch.from_numpy(np.repeat(batch.second, batch.lengths)).to(batch.segments_N)
        states: list[Tensor] = self.encoder(
            replace(
                batch,
                positions_N=batch.positions_N - batch.segments_N * second_N,
                segments_N=torch.zeros_like(batch.segments_N),
                lengths=lengths,
                second=lengths,
            )
        )
        return states

    @property
    def plain(self) -> Encoder:
        """The wrapped encoder."""
        return self.encoder.plain

    @property
    def exact(self) -> Encoder:
        """The same without stored states."""
        return SeparateSentences(self.encoder.exact)

    def recompute_activations(self) -> None:
        """Compute activations of the wrapped encoder again."""
        self.encoder.recompute_activations()

    def blocks(self) -> list[list[nn.Parameter]]:
        """Return the wrapped encoder's blocks."""
        return self.encoder.blocks()

    def lookup_tables(self) -> list[nn.Embedding]:
        """Return the wrapped encoder's tables."""
        return self.encoder.lookup_tables()
