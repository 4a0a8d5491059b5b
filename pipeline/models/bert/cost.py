"""The cost of training a BERT: parameters, FLOPs and memory, by arithmetic alone.

Sums and norms stay in fp32, 4 bytes per element. Inputs of matrix products take 4 bytes, or 2 under
bf16-mixed. In formulas h is the hidden width.
"""

from dataclasses import dataclass

from pipeline.models.bert.config import SEGMENTS, BertConfig
from pipeline.models.cost import FP32, Cost, Pass

HOST_CHUNK = 512  # predictions per chunk of logits on a CPU; see models.losses


@dataclass(frozen=True)
class BertCost(Cost):
    """The cost of BertForPretraining."""

    config: BertConfig
    vocab_size: int

    def parameters(self) -> int:
        """Return the number of weights with both heads; tied ones count once."""
        config, hidden = self.config, self.config.hidden
        norm = hidden * (2 if config.biases else 1)
        gate = 2 if config.activation == "geglu" else 1
        biases = (3 + 1 + 1) * hidden + gate * config.intermediate if config.biases else 0
        layer = 4 * hidden**2 + self._feedforward() + biases + 2 * norm
        positions = config.max_positions if config.positions == "learned" else 0
        segments = SEGMENTS if config.segments else 0
        embeddings = (self.vocab_size + positions + segments) * hidden + norm
        dense = hidden**2 + (hidden if config.biases else 0)
        decoder = 0 if config.tied else self.vocab_size * hidden
        heads = dense + (dense + norm + decoder + self.vocab_size) + (2 * hidden + 2)
        # Pre-norm adds the final norm and omits the first layer's, so the number is equal.
        return embeddings + config.layers * layer + heads

    def model_flops_per_token(self, mean_length: float, predicted_share: float) -> float:
        """Return the FLOPs that the model requires per token of training: forward, and backward
        twice that, regardless of how they are computed.

        The definition for utilisation (Chowdhery et al. 2022, appendix B): every layer over every
        token, the masked-LM head over predicted tokens.
        """
        hidden = self.config.hidden
        layer = 3 * hidden**2 + 2 * self._seen(mean_length) * hidden + self._after_attention()
        head = predicted_share * (hidden**2 + hidden * self.vocab_size) + hidden**2 / mean_length
        return 3 * 2 * (self.config.layers * layer + head)

    def flops_per_token(self, mean_length: float, predicted_share: float) -> float:
        """Return fewer FLOPs than `model_flops_per_token`: the part of the last layer after
        attention runs only over predicted tokens and the first token of each example."""
        kept = min(1.0, predicted_share + 1 / mean_length)
        needed = self.model_flops_per_token(mean_length, predicted_share)
        return needed - 3 * 2 * (1 - kept) * self._after_attention()

    def largest_product(self) -> tuple[int, int]:
        """Return the product of the feed-forward block's first layer."""
        return self.config.hidden, self.config.intermediate

    def activation_bytes(self, one: Pass) -> float:
        """Return the bytes kept from the forward for the backward pass, including the logits."""
        config = self.config
        layers = [self._layer_bytes(one, kept=one.tokens)] * (config.layers - 1)
        # After attention the last layer computes only predicted tokens and each example's first.
        kept = min(one.tokens, one.predictions + one.tokens / one.mean_length)
        layers.append(self._layer_bytes(one, kept))
        inputs = one.tokens * FP32 * config.hidden * len(layers)
        encoder = inputs + max(layers) if one.checkpointing else sum(layers)
        mask = _mask_bytes(one) if config.dropout else 0
        embeddings = one.tokens * ((FP32 + mask) * config.hidden + 3 * 8)  # three int64 columns
        return encoder + embeddings + self._head_bytes(one)

    def _seen(self, mean_length: float) -> float:
        """Return the tokens that a token attends to, in the mean over all layers."""
        config = self.config
        seen = [mean_length if w is None else min(mean_length, 2 * w + 1.0) for w in self._windows]
        return sum(seen) / config.layers

    @property
    def _windows(self) -> list[int | None]:
        return [self.config.window(number) for number in range(self.config.layers)]

    def _feedforward(self) -> int:
        matrices = 3 if self.config.activation == "geglu" else 2
        return matrices * self.config.hidden * self.config.intermediate

    def _after_attention(self) -> int:
        return self.config.hidden**2 + self._feedforward()

    def _layer_bytes(self, one: Pass, kept: float) -> float:
        """Return the bytes of one layer: attention over all tokens, the rest over `kept` tokens."""
        config, h, size = self.config, self.config.hidden, _product_bytes(one)
        # 5 h per token: the input of the projections, queries, keys, values, attention's output.
        attention = one.tokens * 5 * h * size
        if one.on_host and one.precision == "fp32":
            bits = 2 if config.attention_dropout else 0
            attention += one.tokens * config.heads * one.mean_length * (FP32 + bits)
        elif config.attention_dropout or one.on_host:
            attention += one.tokens * h * size  # torch's kernel keeps a second copy of its output
        # Per kept token: the inputs of both norms, the second norm's output, and inside the block
        # the values before and after GELU; for GEGLU both halves, the active half, their product.
        inner = (4 if config.activation == "geglu" else 2) * config.intermediate * size
        masks = 2 * h * _mask_bytes(one) if config.dropout else 0
        return attention + kept * (2 * h * FP32 + h * size + inner + masks)

    def _head_bytes(self, one: Pass) -> float:
        """Return the bytes of the masked-LM head: transform, logits, softmax and its gradient."""
        h, size, vocab_size = self.config.hidden, _product_bytes(one), self.vocab_size
        transform = one.predictions * h * (3 * size + FP32)
        if one.on_host and one.precision == "fp32":  # loss and gradients in one pass over chunks
            chunk = min(HOST_CHUNK, one.predictions)
            return transform + FP32 * (chunk * vocab_size + vocab_size * h + one.predictions * h)
        halves = size if size < FP32 else 0
        return transform + one.predictions * vocab_size * (2 * FP32 + halves)


def _product_bytes(one: Pass) -> int:
    return 2 if one.precision == "bf16-mixed" else FP32


def _mask_bytes(one: Pass) -> int:
    return 2 if one.on_host else 1  # random bits on a CPU, booleans on CUDA
