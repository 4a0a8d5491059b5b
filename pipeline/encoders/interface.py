"""The contract of every encoder: texts or words in, the hidden states of every layer out.

Inputs are encoded once, any selection of them makes a flat, unpadded batch (see `inputs`), and
`forward` gives one vector per unit for every layer.

N units of a batch, E inputs, D hidden width
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.encoders.embed import Layers, Vectors, embed
from pipeline.encoders.inputs import EncodedInputs, InputBatch, Words, WordUnits


class Encoder(nn.Module, ABC):
    """Gives the hidden states of every layer.

    The methods with a body fit encoders whose units are the words themselves, one after another.
    """

    hidden: int  # width of a hidden state
    states: int  # how many there are, the embeddings' included
    longest: int | None = None  # units an input may have, where there is a limit
    joins_pairs = False  # whether the sentences of a pair see each other

    @abstractmethod
    def encode_texts(self, inputs: Sequence[tuple[str, ...]], max_length: int) -> EncodedInputs:
        """Sentences, or pairs of sentences, cut to `max_length` units from their longer side."""

    @abstractmethod
    def encode_words(self, inputs: Sequence[tuple[Words, ...]], max_length: int) -> EncodedInputs:
        """The same of sentences given as words; words that do not fit are left out."""

    @abstractmethod
    def forward(self, batch: InputBatch) -> list[Tensor]:
        """Hidden states x_ND of the embeddings and of every layer."""

    def embed(
        self, sentences: Sequence[str | Sequence[str]], layers: Layers | str = "all"
    ) -> list[Vectors]:
        """The vectors of each sentence's words, one array per sentence; see `embed.embed`."""
        return embed(self, sentences, layers)

    def first_states(self, batch: InputBatch) -> Tensor:
        """The last hidden state of each input's first unit, x_ED: all that some heads read."""
        lengths_E = torch.from_numpy(batch.lengths).to(batch.tokens_N.device)
        first_ED: Tensor = self(batch)[-1][lengths_E.cumsum(0) - lengths_E]
        return first_ED

    def word_units(self, sentences: Sequence[Words]) -> WordUnits:
        """How many units the words of sentences take, for cutting windows that fit."""
        words = sum(map(len, sentences))
        return WordUnits(np.ones(words, np.int64), np.ones(words, np.bool_))

    def frame(self, sentences: int) -> int:
        """How many units an input of so many sentences has besides its words'."""
        return 0

    def blocks(self) -> list[list[nn.Parameter]]:
        """The parameters from the embeddings up, for learning rates that fall with depth."""
        return [list(self.parameters())]
