"""Word vectors from characters: convolutions of several widths, highway layers, a projection.

Runs on the distinct words of a batch. All convolution windows that contain only padding give the
same value, and max pooling needs it once. A word of n characters therefore needs no window after
the n-th. Words are convolved in groups of similar length, which cuts the work to a third and
changes no value.

U words, C characters per word, E width of a character, F filters of all widths, P projected width
"""

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from data_prep.tokenizers.characters import ALPHABET
from pipeline.data.device import send
from pipeline.models.elmo.config import ElmoConfig

COLUMNS = (8, 12, 16, 24)  # largest lengths of the groups; the last group has all longer words


class Highway(nn.Module):
    """A highway layer: g relu(T x) + (1 - g) x, with a gate g."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.transform = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)
        for linear, bias in (
            (self.transform, 0.0),
            (self.gate, -2.0),
        ):  # -2: mostly closed at first
            nn.init.normal_(linear.weight, std=width**-0.5)
            nn.init.constant_(linear.bias, bias)

    def forward(self, x_UF: Tensor) -> Tensor:
        return torch.lerp(x_UF, F.relu(self.transform(x_UF)), torch.sigmoid(self.gate(x_UF)))


class CharacterEncoder(nn.Module):
    """The character encoder of Peters et al. 2018, section 4; initial weights as in bilm-tf."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        width = sum(count for _, count in config.filters)
        self.embedding = nn.Embedding(ALPHABET, config.character_dim, padding_idx=0)
        self.convolutions = nn.ModuleList(
            _convolution(config, size, count) for size, count in config.filters
        )
        self.tanh = config.activation == "tanh"
        self.highways = nn.ModuleList(Highway(width) for _ in range(config.highways))
        self.projection = nn.Linear(width, config.projection)
        self.widest = max(size for size, _ in config.filters)
        nn.init.uniform_(self.embedding.weight.data[1:], -1, 1)
        nn.init.normal_(self.projection.weight, std=width**-0.5)
        nn.init.zeros_(self.projection.bias)

    def forward(self, characters_UC: Tensor, symbols: NDArray[np.int64]) -> Tensor:
        """Return one vector per word, x_UP.

        `symbols` [U] are the characters per word, without padding. They are on the host, so that
        grouping words by length needs no device sync.
        """
        by_length = np.argsort(symbols, kind="stable")
        ends = np.searchsorted(symbols[by_length], COLUMNS, side="right").tolist()
        order_U = send(by_length, characters_UC.device)
        place_U = send(np.argsort(by_length), characters_UC.device)
        columns = [size + self.widest for size in COLUMNS] + [characters_UC.shape[1]]
        pooled = []
        for start, end, size in zip([0, *ends], [*ends, len(order_U)], columns, strict=True):
            if end > start:
                pooled.append(self._convolve(characters_UC[order_U[start:end], :size]))
        x_UF = torch.cat(pooled)
        for highway in self.highways:
            x_UF = highway(x_UF)
        x_UP: Tensor = self.projection(x_UF)
        return x_UP[place_U]

    def _convolve(self, characters_UC: Tensor) -> Tensor:
        x_UEC = self.embedding(characters_UC.int()).transpose(1, 2)
        pooled = [convolution(x_UEC).amax(2) for convolution in self.convolutions]
        x_UF = torch.cat(pooled, 1)
        return torch.tanh(x_UF) if self.tanh else F.relu(x_UF)


def _convolution(config: ElmoConfig, size: int, count: int) -> nn.Conv1d:
    convolution = nn.Conv1d(config.character_dim, count, size)
    if config.activation == "tanh":
        nn.init.normal_(convolution.weight, std=(size * config.character_dim) ** -0.5)
    else:
        nn.init.uniform_(convolution.weight, -0.05, 0.05)
    assert convolution.bias is not None
    nn.init.zeros_(convolution.bias)
    return convolution
