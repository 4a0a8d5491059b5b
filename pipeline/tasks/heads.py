"""Heads: a layer choice, an optional BiLSTM or BiGRU, and a linear layer, on any encoder.

The task's kind decides the shape of the answers:
    classify  [E, C] logits per input; gold_E is the class
    regress   [E, 1] one number per input; gold_E is the number
    tag       [W, C] logits per word, read at the word's first unit; gold_W is the tag
    multilabel  [E, C] logits per label; gold_EC is 1 at the labels of an input
    choice    [E, 1] one score per choice. gold_E2 is 1 at the first choice of each example, and 1
              at its right choice. The inputs of an example are adjacent.
    span      [N, 2] logits per unit: the answer starts here, the answer ends here. gold_N2 is 1 at
              these two units and 0 elsewhere. An input is one window of a passage. If the window
              does not contain the answer, both are the first unit of the input.
Gold answers have the order of the head's rows. U, the number of rows, is E, W or N.

N units of a batch, W words, E inputs, D width, C classes, F features of a pair
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from data_prep.errors import UsageError
from pipeline.encoders import SENTENCES, Encoder, InputBatch
from pipeline.encoders.pooling import pool
from pipeline.tasks import losses
from pipeline.tasks.config import FinetuneConfig
from pipeline.tasks.crf import Crf, to_padded

# A choice needs more hidden states than this; the embeddings count as one state.
LAYERS_NEEDED = {"second_to_last": 1, "sum_last_4": 4, "concat_last_4": 4, "sum_all": 1}


def needed_states(choice: str, states: int) -> list[int]:
    """Return the numbers of the hidden states that a choice reads; 0 are the embeddings."""
    every = range(states)
    if choice.isdigit():
        return [int(choice)]
    return {
        "embeddings": [0],
        "last": [states - 1],
        "second_to_last": [states - 2],
        "sum_last_4": list(every[-4:]),
        "concat_last_4": list(every[-4:]),
        "sum_all": list(every[1:]),
        "mix": list(every),
    }[choice]


class LayerChoice(nn.Module):
    """Combine the hidden states of all layers: one layer, a sum, a concatenation or a mix.

    Raises a UsageError if the encoder has too few layers for the choice.
    """

    def __init__(self, choice: str, states: int, hidden: int) -> None:
        super().__init__()
        needed = int(choice) if choice.isdigit() else LAYERS_NEEDED.get(choice, 0)
        if states <= needed:
            raise UsageError(
                f"finetune.layers={choice}: the encoder has only {states - 1} layers; "
                "choose last or mix"
            )
        self.choice = choice
        self.needed = needed_states(choice, states)
        self.width = 4 * hidden if choice == "concat_last_4" else hidden
        if choice == "mix":  # Peters et al. 2018, equation 1
            self.weights = nn.Parameter(torch.zeros(states))
            self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, states: list[Tensor]) -> Tensor:
        needed = [states[number] for number in self.needed]
        if self.choice == "mix":
            mixed = torch.einsum("s,snd->nd", self.weights.softmax(0), torch.stack(needed))
            return self.gamma * mixed
        if self.choice == "concat_last_4":
            return torch.cat(needed, dim=1)
        return needed[0] if len(needed) == 1 else torch.stack(needed).sum(0)

    def learned(self) -> dict[str, Any] | None:
        """Return the mix as `sesame embed layers=mix` takes it; None for other choices."""
        if self.choice != "mix":
            return None
        return {"weights": self.weights.softmax(0).tolist(), "gamma": self.gamma.item()}


class Context(nn.Module):
    """Two bidirectional recurrent layers over the units of each input.

    `width`: of the inputs; `hidden`: of each direction.
    """

    def __init__(self, kind: str, width: int, hidden: int) -> None:
        super().__init__()
        cell = {"bilstm": nn.LSTM, "bigru": nn.GRU}[kind]
        self.cells = cell(width, hidden, 2, batch_first=True, bidirectional=True)
        self.width = 2 * hidden

    def forward(self, x_ND: Tensor, lengths: NDArray[np.int64]) -> Tensor:
        inputs, real_BT = to_padded(x_ND, lengths)
        packed = pack_padded_sequence(
            inputs, torch.from_numpy(lengths), batch_first=True, enforce_sorted=False
        )
        padded, _ = pad_packed_sequence(self.cells(packed)[0], batch_first=True)
        return padded[real_BT]


class Standardised(nn.Module):
    """Standardise numbers with the mean and deviation of all training batches so far.

    In training mode each batch updates the running moments in place. They are parameters without
    gradients, so that checkpoints hold them. Several ranks add up their batches.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = nn.Parameter(torch.zeros(()), requires_grad=False)
        self.mean = nn.Parameter(torch.zeros(()), requires_grad=False)
        self.square = nn.Parameter(torch.zeros(()), requires_grad=False)

    def forward(self, x_E: Tensor, is_counted: bool = True) -> Tensor:
        """Standardise x_E; all ranks must call this equally often.

        `is_counted=False` leaves the running moments unchanged.
        """
        if self.training:
            seen_E = x_E.detach().float()
            self._update(seen_E if is_counted else seen_E[:0])
        variance = (self.square - self.mean**2).clamp(min=1e-6)
        return (x_E - self.mean) * variance.rsqrt()

    def _update(self, seen_E: Tensor) -> None:
        added = torch.stack(
            [
                seen_E.new_tensor(float(len(seen_E))),
                (seen_E - self.mean).sum(),
                (seen_E**2 - self.square).sum(),
            ]
        )
        if dist.is_initialized():
            dist.all_reduce(added)
        # The step of a batch with other numbers is dropped. No `if`: the host would wait for a GPU.
        added = torch.where(added.isfinite().all(), added, torch.zeros_like(added))
        with torch.no_grad():
            self.count.add_(added[0])
            count = self.count.clamp(min=1)
            self.mean.add_(added[1] / count)
            self.square.add_(added[2] / count)


class Head(nn.Module):
    """Map hidden states to answers.

    `separate`: pool the two sentences of an input separately and compare the two vectors. Used when
    the encoder does not let the sentences see each other. Their cosine similarity is informative
    before any training, so a regression starts as the standardised cosine.
    `labels`: names of the classes; a CRF learns from them which BIO tags cannot follow each other.
    `weights`: weight of each class in the loss; without them all weigh 1.
    """

    weights_C: Tensor | None

    def __init__(
        self,
        kind: str,
        classes: int,
        encoder: Encoder,
        config: FinetuneConfig,
        separate: bool = False,
        labels: Sequence[str] = (),
        weights: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        self.kind = kind
        weights_C = None if weights is None else torch.tensor(weights)
        self.register_buffer("weights_C", weights_C, persistent=False)
        self.pooling = chosen_pooling(kind, encoder, config, separate)
        self.layers = LayerChoice(config.layers, encoder.states, encoder.hidden)
        width = self.layers.width
        self.context = (
            None if config.head == "linear" else Context(config.head, width, config.head_width)
        )
        self.dropout = nn.Dropout(config.dropout)
        width = self.context.width if self.context else width
        self.alike = Standardised() if separate else None
        self.output = nn.Linear(4 * width + 1 if separate else width, classes)
        self.crf = Crf(classes, labels) if config.crf else None
        self.is_counted = True  # False: the next batch is no part of the training, see `Model`
        # In transformers' class the layers before the last linear one; see `class_heads`.
        self.transform = encoder.plain.head_layers(kind) if self._has_transform(config) else None
        nn.init.normal_(self.output.weight, std=0.02)
        nn.init.zeros_(self.output.bias)
        if separate and kind == "regress":
            nn.init.ones_(self.output.weight[:, -1])

    def _has_transform(self, config: FinetuneConfig) -> bool:
        if self.kind in SENTENCES:
            return self.pooling == "pooler"
        return is_plain(config) and config.mode == "full"

    @property
    def fits_class(self) -> bool:
        """True if transformers' class for this kind of task computes the same from last states."""
        is_pooled = self.kind not in SENTENCES or self.pooling == "pooler"
        return (
            is_pooled
            and self.layers.choice == "last"
            and not (self.context or self.alike or self.crf)
        )

    def rows(self, batch: InputBatch) -> Tensor | None:
        """Return the units of which the head reads the last hidden states, and nothing else.

        None if it reads other states too; then `forward` takes all of them.
        """
        if self.layers.choice != "last":
            return None
        if self.kind == "tag":
            return batch.word_starts_W
        is_first = self.kind in SENTENCES and self.pooling in ("first", "pooler")
        return batch.firsts_E if is_first and not (self.context or self.alike) else None

    def read(self, x_RD: Tensor, batch: InputBatch) -> Tensor:
        """Return what `forward` does, from the last hidden states of the `rows`."""
        if self.context is not None:
            x_RD = self.context(x_RD, batch.word_counts)
        return self.answer(x_RD)

    def forward(self, states: list[Tensor], batch: InputBatch) -> Tensor:
        """Return logits [U, C], or predicted numbers [U, 1]. `states`: one [N, D] per layer."""
        x = self.layers(states)
        if self.kind == "tag":
            return self.read(x[batch.word_starts_W], batch)
        if self.context is not None:
            x = self.context(x, batch.lengths)
        if self.kind in SENTENCES:
            x = self._pooled(x, batch)
        return self.answer(x)

    def answer(self, x_UD: Tensor) -> Tensor:
        """Apply the class's own layers, if any, dropout and the linear layer to vectors."""
        if self.transform is not None:
            x_UD = self.transform(x_UD)
        answers: Tensor = self.output(self.dropout(x_UD))
        return answers

    @property
    def _pooling_of_units(self) -> str:
        """The pooling of units; a pooler reads the first one."""
        return "first" if self.pooling == "pooler" else self.pooling

    def _pooled(self, x_ND: Tensor, batch: InputBatch) -> Tensor:
        if self.alike is None:
            return pool(x_ND, batch.lengths, self._pooling_of_units)
        lengths = np.stack([batch.second, batch.lengths - batch.second], 1).ravel()
        pooled = pool(x_ND, lengths, self._pooling_of_units)
        u, v = pooled[0::2], pooled[1::2]
        alike_E1 = self.alike(F.cosine_similarity(u, v), self.is_counted)[:, None]
        # The features of GLUE's own baselines (Wang et al. 2018, section 5) and the cosine. Divide
        # the F features by sqrt(F), as attention scales its products. Otherwise their untrained
        # sum outweighs the single cosine.
        features_EF = torch.cat([u, v, (u - v).abs(), u * v], 1)
        return torch.cat([features_EF / features_EF.shape[1] ** 0.5, alike_E1], 1)

    def loss(self, answers: Tensor, gold: Tensor, batch: InputBatch) -> Tensor:
        """Return the mean cross-entropy per answer; for regression the mean squared error."""
        total, weight = self.loss_sums(answers, gold, batch)
        return total / weight

    def loss_sums(self, answers: Tensor, gold: Tensor, batch: InputBatch) -> tuple[Tensor, float]:
        """Return the sum of the losses and its weight: the loss is sum / weight.

        The loss of a batch in parts is the sum of all sums divided by the sum of all weights.
        """
        return self._summed(answers, gold, batch), self.loss_weight(gold, batch)

    def loss_weight(self, gold: Tensor, batch: InputBatch) -> float:
        """Return the number of answers in the sum, or their total weight; needs no forward pass."""
        return losses.weight(self.kind, gold, batch, self.weights_C)

    def _summed(self, answers: Tensor, gold: Tensor, batch: InputBatch) -> Tensor:
        if self.crf is not None:
            return self.crf.loss(answers, gold, batch.word_counts)
        return losses.summed(self.kind, answers, gold, batch, self.weights_C)

    @property
    def columns(self) -> int:
        """The columns of what `decide` returns."""
        return self.output.out_features + (self.crf is not None)

    def decide(self, answers: Tensor, batch: InputBatch) -> Tensor:
        """Return the answers; with a CRF log-probabilities, and the best path as one more column.

        See `TagAnswers.chosen`.
        """
        return answers if self.crf is None else self.crf.decide(answers, batch.word_counts)


def is_plain(config: FinetuneConfig) -> bool:
    """Return True for a linear layer on the last hidden states."""
    return (config.layers, config.head) == ("last", "linear")


def chosen_pooling(kind: str, encoder: Encoder, config: FinetuneConfig, separate: bool) -> str:
    """Return finetune.pooling; if it is not set, the pooler where the encoder has one, else mean.

    The pooler is for heads as transformers' classes have them: see `is_plain`. Raises a UsageError
    if it is asked for and cannot be had.
    """
    can_pool = encoder.plain.model_type is not None and is_plain(config) and not separate
    if config.pooling == "pooler" and kind in SENTENCES and not can_pool:
        raise UsageError(
            "finetune.pooling=pooler: needs a BERT or another encoder whose class in transformers "
            "has a head for sentences, pairs that are read together, finetune.layers=last and "
            "finetune.head=linear; choose mean"
        )
    if config.pooling == "first" and kind in SENTENCES and encoder.plain.is_causal:
        raise UsageError(
            "finetune.pooling=first: the first unit of this encoder sees nothing after it, so all "
            "inputs would be alike; choose mean"
        )
    if config.pooling is not None:
        return config.pooling
    return "pooler" if can_pool and config.mode == "full" else "mean"
