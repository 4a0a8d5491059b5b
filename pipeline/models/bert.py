"""BERT over flat, unpadded batches: the encoder, its pretraining heads and their losses.

Every linear layer runs over real pieces only; nothing is padded. `Bert` gives the hidden states of
all layers; `BertForPretraining` gives summed losses, to be divided by the global batch's counts.
Modern variants (pre-norm, rotary positions, gated units, no biases) are options of the same code.

N pieces, E examples, M predictions, R rows kept by the last layer, D hidden width, H heads, V
vocabulary
"""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from data_prep.errors import UsageError
from pipeline.data.batch import IGNORE_INDEX, Batch
from pipeline.models.attention import AttentionPlan, attend
from pipeline.models.config import SEGMENTS, BertConfig
from pipeline.models.dropout import Dropout
from pipeline.models.losses import masked_loss
from pipeline.models.positions import Rotation, rotate, rotation, sinusoids


class Losses(NamedTuple):
    """Sums over a micro-batch, in fp32."""

    mlm_sum: Tensor
    mlm_correct: Tensor
    pair_sum: Tensor
    pair_correct: Tensor


class Embeddings(nn.Module):
    """Pieces, positions and segments as one vector each."""

    sinusoids: Tensor | None

    def __init__(self, config: BertConfig, vocab_size: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, config.hidden)
        self.segments = nn.Embedding(SEGMENTS, config.hidden) if config.segments else None
        self.positions = (
            nn.Embedding(config.max_positions, config.hidden)
            if config.positions == "learned"
            else None
        )
        waves = config.positions == "sinusoidal"
        table = sinusoids(config.max_positions, config.hidden) if waves else None
        self.register_buffer("sinusoids", table, persistent=False)
        self.norm = nn.LayerNorm(config.hidden, config.norm_eps, bias=config.biases)
        self.dropout = Dropout(config.dropout)

    def forward(self, tokens_N: Tensor, positions_N: Tensor, segments_N: Tensor) -> Tensor:
        x_ND: Tensor = self.tokens(tokens_N)
        if self.segments is not None:
            x_ND = x_ND + self.segments(segments_N)
        if self.positions is not None:
            x_ND = x_ND + self.positions(positions_N)
        elif self.sinusoids is not None:
            x_ND = x_ND + self.sinusoids[positions_N]
        x_ND = self.dropout(self.norm(x_ND))
        return x_ND


class Attention(nn.Module):
    """Attention inside each example; all three projections are one matrix product."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.dropout = config.attention_dropout
        self.qkv = nn.Linear(config.hidden, 3 * config.hidden, bias=config.biases)
        self.output = nn.Linear(config.hidden, config.hidden, bias=config.biases)

    def forward(
        self, x_ND: Tensor, plan: AttentionPlan, turn: Rotation | None, rows_R: Tensor | None
    ) -> Tensor:
        qkv_N3HD = self.qkv(x_ND).unflatten(1, (3, self.heads, -1))
        if turn is not None:
            qk_N2HD, v_N1HD = qkv_N3HD.split([2, 1], 1)
            qkv_N3HD = torch.cat([rotate(qk_N2HD, turn), v_N1HD], 1)
        dropout = self.dropout if self.training else 0.0
        x_ND = attend(qkv_N3HD, plan, dropout).flatten(1)
        x_ND = self.output(_kept(x_ND, rows_R))
        return x_ND


class FeedForward(nn.Module):
    """Two linear layers with GELU between, or its gated form."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.gated = config.activation == "geglu"
        width = config.intermediate * (2 if self.gated else 1)
        self.input = nn.Linear(config.hidden, width, bias=config.biases)
        self.output = nn.Linear(config.intermediate, config.hidden, bias=config.biases)

    def forward(self, x_ND: Tensor) -> Tensor:
        inner: Tensor = self.input(x_ND)
        if self.gated:
            inner, gate = inner.chunk(2, dim=-1)
            inner = F.gelu(inner) * gate
        else:
            inner = F.gelu(inner)
        x_ND = self.output(inner)
        return x_ND


class Layer(nn.Module):
    """Attention and feed-forward, each with residual and norm after (BERT) or before it."""

    def __init__(self, config: BertConfig, is_first: bool) -> None:
        super().__init__()
        self.pre_norm = config.norm == "pre"
        self.attention = Attention(config)
        # What the first layer would norm before it the embeddings have normed (as in ModernBERT).
        self.attention_norm = (
            nn.Identity()
            if self.pre_norm and is_first
            else nn.LayerNorm(config.hidden, config.norm_eps, bias=config.biases)
        )
        self.feedforward = FeedForward(config)
        self.feedforward_norm = nn.LayerNorm(config.hidden, config.norm_eps, bias=config.biases)
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        x_ND: Tensor,
        plan: AttentionPlan,
        turn: Rotation | None,
        rows_R: Tensor | None = None,
    ) -> Tensor:
        """The layer's output for all rows, or for `rows_R` only: keys and values need all rows,
        what follows attention does not."""
        if self.pre_norm:
            attended = self.attention(self.attention_norm(x_ND), plan, turn, rows_R)
            x_ND = _kept(x_ND, rows_R) + self.dropout(attended)
            x_ND = x_ND + self.dropout(self.feedforward(self.feedforward_norm(x_ND)))
        else:
            attended = self.attention(x_ND, plan, turn, rows_R)
            x_ND = self.attention_norm(_kept(x_ND, rows_R) + self.dropout(attended))
            x_ND = self.feedforward_norm(x_ND + self.dropout(self.feedforward(x_ND)))
        return x_ND


def _kept(x_ND: Tensor, rows_R: Tensor | None) -> Tensor:
    return x_ND if rows_R is None else x_ND.index_select(0, rows_R)


class Bert(nn.Module):
    """The encoder, and the pooler that makes one vector of an example's first piece."""

    turns: Tensor | None

    def __init__(
        self, config: BertConfig, vocab_size: int, checkpoint_activations: bool = False
    ) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.checkpoint_activations = checkpoint_activations
        self.embeddings = Embeddings(config, vocab_size)
        self.layers = nn.ModuleList(Layer(config, number == 0) for number in range(config.layers))
        self.final_norm = (
            nn.LayerNorm(config.hidden, config.norm_eps, bias=config.biases)
            if config.norm == "pre"
            else nn.Identity()
        )
        self.pooler = nn.Linear(config.hidden, config.hidden, bias=config.biases)
        rotary = config.positions == "rotary"
        table = rotation(config.max_positions, config.hidden // config.heads) if rotary else None
        self.register_buffer("turns", table, persistent=False)
        initialise(self, config.init_std)

    def forward(
        self, tokens_N: Tensor, positions_N: Tensor, segments_N: Tensor, lengths: NDArray[np.int64]
    ) -> list[Tensor]:
        """Hidden states x_ND: the embeddings' output, then every layer's."""
        plan = AttentionPlan.of(lengths, tokens_N.device)
        states = self.encode(tokens_N, positions_N, segments_N, lengths, plan)
        return [plan.restore(x_ND) for x_ND in states]

    def first_states(
        self, tokens_N: Tensor, positions_N: Tensor, segments_N: Tensor, lengths: NDArray[np.int64]
    ) -> Tensor:
        """The last hidden state of each example's first piece, x_ED."""
        plan = AttentionPlan.of(lengths, tokens_N.device)
        states = self.encode(tokens_N, positions_N, segments_N, lengths, plan, plan.starts_E)
        return states[-1]

    def encode(
        self,
        tokens_N: Tensor,
        positions_N: Tensor,
        segments_N: Tensor,
        lengths: NDArray[np.int64],
        plan: AttentionPlan,
        rows_R: Tensor | None = None,
    ) -> list[Tensor]:
        """Hidden states in the plan's order; the last layer's for `rows_R` only, where given."""
        if len(lengths) and lengths.max() > self.config.max_positions:
            raise UsageError(
                f"an example of {lengths.max()} pieces: the model has model.max_positions="
                f"{self.config.max_positions}; cut examples to that length"
            )
        positions_N = plan.sort(positions_N)
        x_ND = self.embeddings(plan.sort(tokens_N), positions_N, plan.sort(segments_N))
        turn = None if self.turns is None else self.turns[positions_N].unbind(1)
        states = [x_ND]
        for layer in self.layers:
            rows = rows_R if len(states) == len(self.layers) else None
            if self.checkpoint_activations and torch.is_grad_enabled():
                x_ND = checkpoint(layer, x_ND, plan, turn, rows, use_reentrant=False)
            else:
                x_ND = layer(x_ND, plan, turn, rows)
            states.append(x_ND)
        states[-1] = self.final_norm(states[-1])
        return states

    def pool(self, first_ED: Tensor) -> Tensor:
        """One vector an example, from the last hidden state of its first piece."""
        return torch.tanh(self.pooler(first_ED))


class MaskedHead(nn.Module):
    """Predicts pieces: a transform, then the word embeddings (or an own matrix) and a bias."""

    def __init__(self, config: BertConfig, vocab_size: int) -> None:
        super().__init__()
        self.transform = nn.Linear(config.hidden, config.hidden, bias=config.biases)
        self.norm = nn.LayerNorm(config.hidden, config.norm_eps, bias=config.biases)
        self.decoder = None if config.tied else nn.Linear(config.hidden, vocab_size, bias=False)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, x_MD: Tensor, embeddings_VD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Vectors, matrix and bias that make the logits, which no loss needs all at once."""
        weight_VD = embeddings_VD if self.decoder is None else self.decoder.weight
        return self.norm(F.gelu(self.transform(x_MD))), weight_VD, self.bias


class BertForPretraining(nn.Module):
    """BERT with its two heads: masked pieces, and whether the second segment follows the first."""

    def __init__(
        self, config: BertConfig, vocab_size: int, checkpoint_activations: bool = False
    ) -> None:
        super().__init__()
        self.bert = Bert(config, vocab_size, checkpoint_activations)
        self.masked = MaskedHead(config, vocab_size)
        self.pair = nn.Linear(config.hidden, 2)
        initialise(self.masked, config.init_std)
        initialise(self.pair, config.init_std)

    def forward(self, batch: Batch) -> Losses:
        """Summed losses and counts of right answers."""
        plan = AttentionPlan.of(batch.lengths, batch.tokens_N.device)
        targets_R = torch.cat([plan.rows(batch.targets_M), plan.starts_E])
        x_RD = self.bert.encode(
            batch.tokens_N, batch.positions_N, batch.segments_N, batch.lengths, plan, targets_R
        )[-1]
        x_MD, first_ED = x_RD[: len(batch.targets_M)], x_RD[len(batch.targets_M) :]
        y_MD, weight_VD, bias_V = self.masked(x_MD, self.bert.embeddings.tokens.weight)
        mlm_sum, mlm_correct = masked_loss(y_MD, weight_VD, bias_V, batch.labels_M)
        logits_E2 = self.pair(self.bert.pool(first_ED)).float()
        # Without pairs the sum is zero, not absent: every parameter keeps a gradient under DDP.
        return Losses(
            mlm_sum,
            mlm_correct,
            F.cross_entropy(
                logits_E2, batch.pair_labels_E, reduction="sum", ignore_index=IGNORE_INDEX
            ),
            (logits_E2.detach().argmax(1) == batch.pair_labels_E).sum(),
        )

    def predict(
        self, tokens_N: Tensor, positions_N: Tensor, segments_N: Tensor, lengths: NDArray[np.int64]
    ) -> tuple[Tensor, Tensor]:
        """Logits of both heads at all positions: masked-LM [N, V] and pair [E, 2]."""
        x_ND = self.bert(tokens_N, positions_N, segments_N, lengths)[-1]
        starts = np.cumsum(lengths) - lengths
        first_ED = x_ND[torch.from_numpy(starts).to(x_ND.device)]
        return (
            F.linear(*self.masked(x_ND, self.bert.embeddings.tokens.weight)),
            self.pair(self.bert.pool(first_ED)),
        )


def initialise(module: nn.Module, std: float) -> None:
    """Truncated normal weights and zero biases, as published (Devlin et al., code)."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.trunc_normal_(part.weight, std=std, a=-2 * std, b=2 * std)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)
