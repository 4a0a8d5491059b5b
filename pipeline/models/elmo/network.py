"""ELMo (Peters et al. 2018): words from their characters, read by LSTMs in both directions.

`Elmo` returns the hidden states of every layer. `ElmoForPretraining` reads the next window of every
stream, predicts the next words and returns the LSTM state after the window. The backward direction
reads a stream that is already reversed, so both directions use the same code.

S streams, T words of a window, U distinct words, P projected width, L layers, C memory width (in
`characters_UC`: characters per word), X = C + P width of a state
"""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from pipeline.data.streams import WordBatch
from pipeline.models.dropout import Dropout
from pipeline.models.elmo.characters import CharacterEncoder
from pipeline.models.elmo.config import ElmoConfig
from pipeline.models.elmo.lstm import ProjectedLSTM
from pipeline.models.elmo.sampled_softmax import Negatives, WordSoftmax

DIRECTIONS = 2


class ElmoLosses(NamedTuple):
    """Summed cross-entropy of a batch's next words, in fp32."""

    forward_sum: Tensor
    backward_sum: Tensor


class Direction(nn.Module):
    """The LSTM layers of one direction, with a residual connection from the second layer on."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        sizes = (config.projection, config.cell, config.projection)
        clips = (config.cell_clip, config.projection_clip)
        self.layers = nn.ModuleList(ProjectedLSTM(*sizes, *clips) for _ in range(config.layers))
        self.dropout = Dropout(config.dropout)

    def forward(self, x_TSP: Tensor, state_LSX: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return the output [T, S, P] of every layer, and the state [L, S, X] after the last word.

        The returned state is detached: gradients do not flow into earlier windows.
        """
        outputs: list[Tensor] = []
        states: list[Tensor] = []
        for layer, state_SX in zip(self.layers, state_LSX, strict=True):
            c_SC, h_SP = state_SX.split([layer.cell, layer.projected], 1)
            x_TSP = self.dropout(x_TSP)
            y_TSP, h_SP, c_SC = layer(x_TSP, h_SP, c_SC)
            states.append(torch.cat([c_SC, h_SP], 1).detach())
            x_TSP = x_TSP + y_TSP if outputs else y_TSP
            outputs.append(x_TSP)
        return outputs, torch.stack(states)


class Elmo(nn.Module):
    """The encoder: word vectors from characters, then LSTMs in both directions."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.config = config
        self.characters = CharacterEncoder(config)
        self.directions = nn.ModuleList(Direction(config) for _ in range(DIRECTIONS))

    def zero_state(self, streams: int, like: Tensor) -> Tensor:
        """Return the state before the first word, [L, 2, S, X], with dtype and device of `like`."""
        width = self.config.cell + self.config.projection
        return like.new_zeros(self.config.layers, DIRECTIONS, streams, width)

    def forward(
        self,
        characters_UC: Tensor,
        symbols: NDArray[np.int64],
        index_2TS: Tensor,
        state: Tensor | None = None,
    ) -> tuple[Tensor, list[list[Tensor]], Tensor]:
        """Return word vectors x_UP, the outputs [T, S, P] by direction and layer, and the state
        [L, 2, S, X] after the window.

        `symbols` [U] are the characters per word, on the host. `index_2TS` has the index into U of
        the word that each direction reads at each time.
        `state` is the state before the window; None: zeros.
        """
        x_UP: Tensor = self.characters(characters_UC, symbols)
        if state is None:
            state = self.zero_state(index_2TS.shape[2], x_UP)
        outputs, states = [], []
        for number, direction in enumerate(self.directions):
            layers, new = direction(F.embedding(index_2TS[number], x_UP), state[:, number])
            outputs.append(layers)
            states.append(new)
        return x_UP, outputs, torch.stack(states, 1)


class ElmoForPretraining(nn.Module):
    """ELMo with the softmax that both directions share."""

    def __init__(self, config: ElmoConfig, vocab_size: int) -> None:
        super().__init__()
        self.elmo = Elmo(config)
        self.dropout = Dropout(config.dropout)
        self.softmax = WordSoftmax(vocab_size, config.projection)

    def forward(
        self, batch: WordBatch, state: Tensor | None, negatives: Negatives | None
    ) -> tuple[ElmoLosses, Tensor]:
        """Return the summed losses of a window and the state [L, 2, S, X] after it.

        `negatives` None computes the exact softmax over the whole vocabulary.
        """
        index_2TS = torch.stack([batch.forward_index_ST.t(), batch.backward_index_ST.t()])
        _, outputs, state = self.elmo(batch.characters_UC, batch.symbols, index_2TS, state)
        tops = [self.dropout(layers[-1]).flatten(0, 1) for layers in outputs]
        targets = [batch.forward_targets_ST.t(), batch.backward_targets_ST.t()]
        losses = self.softmax(tops, [words_TS.flatten() for words_TS in targets], negatives)
        return ElmoLosses(*losses), state


def draw_negatives(
    config: ElmoConfig, vocab_size: int, seed: int, device: torch.device
) -> Negatives | None:
    """Return the negative samples of a step; None (exact softmax) if `model.samples` is 0 or not
    less than the vocabulary."""
    if not config.samples_words(vocab_size):
        return None
    return Negatives.draw(config.samples, vocab_size, seed, device)
