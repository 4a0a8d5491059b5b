"""BERT over flat, unpadded batches: the encoder, its pretraining heads and their losses.

Linear layers run over real tokens only, never over padding. `Bert` returns the hidden states of all
layers. `BertForPretraining` returns summed losses, to be divided by the counts of the global batch.
Modern variants (pre-norm, rotary positions, gated units, no biases) are options of the same code.

N tokens, E examples, M predictions, D hidden width, H heads, K width of a head, V vocabulary,
R rows that a layer returns: all N, or in the last layer only the needed ones
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
from pipeline.models.bert.config import SEGMENTS, BertConfig
from pipeline.models.dropout import Dropout
from pipeline.models.linear import Linear
from pipeline.models.losses import masked_loss
from pipeline.models.positions import CosSin, apply_rotary, rotary_table, sinusoids


class Losses(NamedTuple):
    """Sums over a micro-batch, in fp32; each is a scalar."""

    mlm_sum: Tensor  # cross-entropy of masked tokens
    mlm_correct: Tensor  # number of correct predictions
    pair_sum: Tensor  # cross-entropy of pairs
    pair_correct: Tensor  # number of correct predictions


class Embeddings(nn.Module):
    """One vector per token: the sum of its token, segment and position embeddings, normed."""

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
    """Self-attention inside each example. One matrix product computes queries, keys and values."""

    def __init__(self, config: BertConfig, window: int | None) -> None:
        super().__init__()
        self.heads = config.heads
        self.window = window  # tokens on each side that a token sees; None: its whole example
        self.dropout = config.attention_dropout
        self.qkv = Linear(config.hidden, 3 * config.hidden, bias=config.biases)
        self.output = Linear(config.hidden, config.hidden, bias=config.biases)

    def forward(
        self, x_ND: Tensor, plan: AttentionPlan, cos_sin: CosSin | None, rows_R: Tensor | None
    ) -> Tensor:
        qkv_N3HK = self.qkv(x_ND).unflatten(1, (3, self.heads, -1))
        if cos_sin is not None:
            qk_N2HK, v_N1HK = qkv_N3HK.split([2, 1], 1)
            qkv_N3HK = torch.cat([apply_rotary(qk_N2HK, cos_sin), v_N1HK], 1)
        dropout = self.dropout if self.training else 0.0
        mixed_ND = attend(qkv_N3HK, plan, dropout, self.window).flatten(1)
        y_RD: Tensor = self.output(_kept(mixed_ND, rows_R))
        return y_RD


class FeedForward(nn.Module):
    """Two linear layers with GELU between them, or the gated form (GEGLU)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.gated = config.activation == "geglu"
        width = config.intermediate * (2 if self.gated else 1)
        self.input = Linear(config.hidden, width, bias=config.biases, has_gelu=not self.gated)
        self.output = Linear(config.intermediate, config.hidden, bias=config.biases)

    def forward(self, x_RD: Tensor) -> Tensor:
        inner: Tensor = self.input(x_RD)
        if self.gated:
            inner, gate = inner.chunk(2, dim=-1)
            inner = F.gelu(inner) * gate
        y_RD: Tensor = self.output(inner)
        return y_RD


class Layer(nn.Module):
    """Attention and feed-forward, each with a residual, and layer norm after (BERT) or before."""

    def __init__(self, config: BertConfig, number: int) -> None:
        super().__init__()
        self.pre_norm = config.norm == "pre"
        self.attention = Attention(config, config.window(number))
        # The embeddings' output is normed already, so the first pre-norm layer needs no norm (as in
        # ModernBERT).
        self.attention_norm = (
            nn.Identity()
            if self.pre_norm and number == 0
            else nn.LayerNorm(config.hidden, config.norm_eps, bias=config.biases)
        )
        self.feedforward = FeedForward(config)
        self.feedforward_norm = nn.LayerNorm(config.hidden, config.norm_eps, bias=config.biases)
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        x_ND: Tensor,
        plan: AttentionPlan,
        cos_sin: CosSin | None,
        rows_R: Tensor | None = None,
    ) -> Tensor:
        """Return the layer's output for all rows, or only for `rows_R`.

        Keys and values need all rows; everything after attention is computed for `rows_R` only.
        """
        if self.pre_norm:
            attended_RD = self.attention(self.attention_norm(x_ND), plan, cos_sin, rows_R)
            y_RD: Tensor = _kept(x_ND, rows_R) + self.dropout(attended_RD)
            y_RD = y_RD + self.dropout(self.feedforward(self.feedforward_norm(y_RD)))
        else:
            attended_RD = self.attention(x_ND, plan, cos_sin, rows_R)
            y_RD = self.attention_norm(_kept(x_ND, rows_R) + self.dropout(attended_RD))
            y_RD = self.feedforward_norm(y_RD + self.dropout(self.feedforward(y_RD)))
        return y_RD


def _kept(x_ND: Tensor, rows_R: Tensor | None) -> Tensor:
    return x_ND if rows_R is None else x_ND.index_select(0, rows_R)


class Bert(nn.Module):
    """The encoder, with the pooler that computes one vector per example from its first token."""

    # Cosines and sines by position, see `positions.rotary_table`, of global and of local layers.
    rotary: Tensor | None
    local_rotary: Tensor | None

    def __init__(
        self, config: BertConfig, vocab_size: int, checkpoint_activations: bool = False
    ) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.checkpoint_activations = checkpoint_activations
        self.embeddings = Embeddings(config, vocab_size)
        self.layers = nn.ModuleList(Layer(config, number) for number in range(config.layers))
        self.final_norm = (
            nn.LayerNorm(config.hidden, config.norm_eps, bias=config.biases)
            if config.norm == "pre"
            else nn.Identity()
        )
        self.pooler = nn.Linear(config.hidden, config.hidden, bias=config.biases)
        is_rotary = config.positions == "rotary"
        head_width = config.hidden // config.heads
        table = local = None
        if is_rotary:
            table = rotary_table(config.max_positions, head_width, config.rotary_base)
        if is_rotary and config.global_every > 1:
            local = rotary_table(config.max_positions, head_width)
        self.register_buffer("rotary", table, persistent=False)
        self.register_buffer("local_rotary", local, persistent=False)
        initialise(self, config.init_std)

    def forward(
        self, tokens_N: Tensor, positions_N: Tensor, segments_N: Tensor, lengths: NDArray[np.int64]
    ) -> list[Tensor]:
        """Return the hidden states x_ND of the embeddings and of every layer, in the given order.

        `lengths` [E] are the examples' tokens. Raises `UsageError` if one exceeds `max_positions`.
        """
        plan = AttentionPlan.of(lengths, tokens_N.device)
        states = self.encode(tokens_N, positions_N, segments_N, lengths, plan)
        return [plan.restore(x_ND) for x_ND in states]

    def last_states(
        self,
        tokens_N: Tensor,
        positions_N: Tensor,
        segments_N: Tensor,
        lengths: NDArray[np.int64],
        rows_R: Tensor,
    ) -> Tensor:
        """Return the last hidden states of some tokens, x_RD."""
        plan = AttentionPlan.of(lengths, tokens_N.device)
        rows_R = plan.rows(rows_R)
        return self.encode(tokens_N, positions_N, segments_N, lengths, plan, rows_R)[-1]

    def encode(
        self,
        tokens_N: Tensor,
        positions_N: Tensor,
        segments_N: Tensor,
        lengths: NDArray[np.int64],
        plan: AttentionPlan,
        rows_R: Tensor | None = None,
    ) -> list[Tensor]:
        """Return the hidden states of the embeddings and of every layer, in the plan's order.

        With `rows_R` (row numbers in the plan's order) the last state has only these rows.
        """
        if len(lengths) and lengths.max() > self.config.max_positions:
            raise UsageError(
                f"an example of {lengths.max()} tokens: the model has model.max_positions="
                f"{self.config.max_positions}; cut examples to that length"
            )
        positions_N = plan.sort(positions_N)
        x_ND = self.embeddings(plan.sort(tokens_N), positions_N, plan.sort(segments_N))
        whole, near = (
            None if table is None else table[positions_N].unbind(1)
            for table in (self.rotary, self.local_rotary)
        )
        states = [x_ND]
        for number, layer in enumerate(self.layers):
            rows = rows_R if len(states) == len(self.layers) else None
            cos_sin = whole if self.config.window(number) is None else near
            if self.checkpoint_activations and torch.is_grad_enabled():
                x_ND = checkpoint(layer, x_ND, plan, cos_sin, rows, use_reentrant=False)
            else:
                x_ND = layer(x_ND, plan, cos_sin, rows)
            states.append(x_ND)
        states[-1] = self.final_norm(states[-1])
        return states

    def pool(self, first_ED: Tensor) -> Tensor:
        """Return one vector per example, [E, D], from the last hidden state of its first token."""
        return torch.tanh(self.pooler(first_ED))


class MaskedHead(nn.Module):
    """The masked-LM head: a transform, then the token embeddings (or an own matrix) and a bias."""

    def __init__(self, config: BertConfig, vocab_size: int) -> None:
        super().__init__()
        self.transform = nn.Linear(config.hidden, config.hidden, bias=config.biases)
        self.norm = nn.LayerNorm(config.hidden, config.norm_eps, bias=config.biases)
        self.decoder = None if config.tied else nn.Linear(config.hidden, vocab_size, bias=False)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, x_MD: Tensor, embeddings_VD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return vectors [M, D], matrix [V, D] and bias [V], whose product is the logits.

        The losses compute logits in chunks, so that [M, V] is never held at once.
        """
        weight_VD = embeddings_VD if self.decoder is None else self.decoder.weight
        return self.norm(F.gelu(self.transform(x_MD))), weight_VD, self.bias


class BertForPretraining(nn.Module):
    """BERT with its two pretraining heads: masked tokens and pairs of segments."""

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
        """Return summed losses and numbers of correct predictions."""
        plan = AttentionPlan.of(batch.lengths, batch.tokens_N.device)
        targets_R = torch.cat([plan.rows(batch.targets_M), plan.starts_E])
        x_RD = self.bert.encode(
            batch.tokens_N, batch.positions_N, batch.segments_N, batch.lengths, plan, targets_R
        )[-1]
        x_MD, first_ED = x_RD[: len(batch.targets_M)], x_RD[len(batch.targets_M) :]
        y_MD, weight_VD, bias_V = self.masked(x_MD, self.bert.embeddings.tokens.weight)
        mlm_sum, mlm_correct = masked_loss(y_MD, weight_VD, bias_V, batch.labels_M)
        logits_E2 = self.pair(self.bert.pool(first_ED)).float()
        # Without pairs the sum is still computed (zero): DDP needs a gradient of every parameter.
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
        """Return the logits of both heads: masked-LM at all positions [N, V], and pair [E, 2]."""
        x_ND = self.bert(tokens_N, positions_N, segments_N, lengths)[-1]
        starts = np.cumsum(lengths) - lengths
        first_ED = x_ND[torch.from_numpy(starts).to(x_ND.device)]
        return (
            F.linear(*self.masked(x_ND, self.bert.embeddings.tokens.weight)),
            self.pair(self.bert.pool(first_ED)),
        )


def initialise(module: nn.Module, std: float) -> None:
    """Set weights to a truncated normal and biases to zero, in place (Devlin et al., code)."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.trunc_normal_(part.weight, std=std, a=-2 * std, b=2 * std)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)
