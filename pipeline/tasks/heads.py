"""Heads: a layer choice, an optional BiLSTM and a linear layer on the units of any encoder.

A task that tags sees each word's first unit; others see all units, pooled to one vector an input.

N units of a batch, W words, U answers (words when tagging, else inputs), D width, C classes
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from data_prep.errors import UsageError
from pipeline.encoders import InputBatch
from pipeline.tasks.config import FinetuneConfig

LSTM_WIDTH = 200  # units of a direction, in both layers (Devlin et al., section 5.3: 768 for base)


class LayerChoice(nn.Module):
    """The hidden states of all layers as one: some layer, a sum, a concatenation or a mix."""

    def __init__(self, choice: str, states: int, hidden: int) -> None:
        super().__init__()
        if choice.endswith("_last_4") and states < 5:
            raise UsageError(
                f"finetune.layers={choice}: the encoder has only {states - 1} layers; "
                "choose last, sum_all or mix"
            )
        self.choice = choice
        self.width = 4 * hidden if choice == "concat_last_4" else hidden
        if choice == "mix":  # Peters et al. 2018, equation 1
            self.weights = nn.Parameter(torch.zeros(states))
            self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, states: list[Tensor]) -> Tensor:
        if self.choice == "embeddings":
            return states[0]
        if self.choice == "last":
            return states[-1]
        if self.choice == "second_to_last":
            return states[-2]
        if self.choice == "sum_last_4":
            return torch.stack(states[-4:]).sum(0)
        if self.choice == "concat_last_4":
            return torch.cat(states[-4:], dim=1)
        if self.choice == "sum_all":
            return torch.stack(states[1:]).sum(0)
        return self.gamma * torch.einsum("s,snd->nd", self.weights.softmax(0), torch.stack(states))

    def learned(self) -> dict[str, Any] | None:
        """The mix as numbers, which `sesame embed layers=mix` takes; None of other choices."""
        if self.choice != "mix":
            return None
        return {"weights": self.weights.softmax(0).tolist(), "gamma": self.gamma.item()}


class BiLSTM(nn.Module):
    """Two layers over the units of each input, both ways."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, LSTM_WIDTH, 2, batch_first=True, bidirectional=True)
        self.width = 2 * LSTM_WIDTH

    def forward(self, x_ND: Tensor, lengths: NDArray[np.int64]) -> Tensor:
        inputs = pad_sequence(list(x_ND.split_with_sizes(lengths.tolist())), batch_first=True)
        packed = pack_padded_sequence(
            inputs, torch.from_numpy(lengths), batch_first=True, enforce_sorted=False
        )
        padded, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return torch.cat([row[:length] for row, length in zip(padded, lengths, strict=True)])


class Head(nn.Module):
    """Hidden states to answers: classes for inputs or words, or one number an input."""

    def __init__(
        self, kind: str, classes: int, states: int, hidden: int, config: FinetuneConfig
    ) -> None:
        super().__init__()
        self.kind = kind
        self.pooling = config.pooling
        self.layers = LayerChoice(config.layers, states, hidden)
        width = self.layers.width
        self.context = BiLSTM(width) if config.head == "bilstm" else None
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(self.context.width if self.context else width, classes)
        nn.init.normal_(self.output.weight, std=0.02)
        nn.init.zeros_(self.output.bias)

    def forward(self, states: list[Tensor], batch: InputBatch) -> Tensor:
        """Logits [U, C], or predicted numbers [U, 1]."""
        x, lengths = self.layers(states), batch.lengths
        if self.kind == "tag":
            x, lengths = x[batch.word_starts_W], batch.word_counts
        if self.context is not None:
            x = self.context(x, lengths)
        if self.kind != "tag":
            x = pool(x, lengths, self.pooling)
        answers: Tensor = self.output(self.dropout(x))
        return answers

    def loss(self, answers: Tensor, gold_U: Tensor) -> Tensor:
        """Cross-entropy, or mean squared error for regression."""
        if self.kind == "regress":
            return F.mse_loss(answers[:, 0], gold_U)
        return F.cross_entropy(answers, gold_U)


def pool(x_ND: Tensor, lengths: NDArray[np.int64], how: str) -> Tensor:
    """One vector for each run of units."""
    lengths_E = torch.from_numpy(lengths).to(x_ND.device)
    if how == "first":
        return x_ND[lengths_E.cumsum(0) - lengths_E]
    return torch.segment_reduce(x_ND, how, lengths=lengths_E)
