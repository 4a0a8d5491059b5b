"""Compute the memory of training by arithmetic: a rank's part of the model, and activations.

Sums and norms stay in fp32, 4 bytes per element. Inputs of matrix products take 4 bytes, or 2 under
bf16-mixed. In formulas h is the hidden width.
"""

from dataclasses import dataclass

from pipeline.models.config import BertConfig
from pipeline.training.config import ZERO_BUCKET

FP32 = 4
HOST_CHUNK = 512  # predictions per chunk of logits on a CPU; see models.losses


@dataclass(frozen=True)
class Memory:
    """Bytes on one device, by part."""

    weights: float
    gradients: float
    optimizer: float
    exchange: float  # communication buffers for gradients and weights
    activations: float = 0.0

    @property
    def total(self) -> float:
        states = self.weights + self.gradients + self.optimizer
        return states + self.exchange + self.activations


def of_the_model(parameters: int, strategy: str, ranks: int, precision: str) -> Memory:
    """Return a rank's fp32 weights, gradients and AdamW moments, and the strategy's buffers.

    ZeRO keeps a second copy of the weights, divided over the ranks. ZeRO 3 divides the first copy
    too, but during a step it gathers the whole of a model of this size.
    """
    whole = FP32 * parameters
    part = whole / ranks
    copies = whole / 2 if precision == "bf16-mixed" else 0.0  # bf16 copies of autocast in a step
    buckets = 2.0 * FP32 * ZERO_BUCKET  # one is filled while the other is sent
    match strategy:
        case "zero1":
            return Memory(whole + part + copies, whole, 2 * part, buckets)
        case "zero2":
            return Memory(whole + part + copies, part, 2 * part, buckets)
        case "zero3":
            return Memory(2 * part + copies, part, 2 * part, buckets + whole)
        case _:  # single; ddp, whose gradients are views of the communication buffers
            return Memory(whole + copies, whole, 2 * whole, 0.0)


@dataclass(frozen=True)
class Pass:
    """One forward pass of a rank: its size and how it is computed."""

    tokens: float
    mean_length: float  # mean length of a token's example
    predictions: float
    precision: str
    on_host: bool = False  # on a CPU
    checkpointing: bool = False


def activations(config: BertConfig, vocab_size: int, one: Pass) -> float:
    """Return the bytes kept from the forward for the backward pass, including the logits."""
    layers = [_layer(config, one, kept=one.tokens)] * (config.layers - 1)
    # After attention the last layer computes only predicted tokens and each example's first.
    kept = min(one.tokens, one.predictions + one.tokens / one.mean_length)
    layers.append(_layer(config, one, kept))
    inputs = one.tokens * FP32 * config.hidden * len(layers)
    encoder = inputs + max(layers) if one.checkpointing else sum(layers)
    mask = _mask_bytes(one) if config.dropout else 0
    embeddings = one.tokens * ((FP32 + mask) * config.hidden + 3 * 8)  # and three int64 columns
    return encoder + embeddings + _head(config, vocab_size, one)


def _bytes(one: Pass) -> int:
    return 2 if one.precision == "bf16-mixed" else FP32


def _mask_bytes(one: Pass) -> int:
    return 2 if one.on_host else 1  # random bits on a CPU, booleans on CUDA


def _layer(config: BertConfig, one: Pass, kept: float) -> float:
    """Return the bytes of one layer: attention over all tokens, the rest over `kept` tokens."""
    h, size = config.hidden, _bytes(one)
    # 5 h per token: the input of the projections, queries, keys, values, attention's output.
    attention = one.tokens * 5 * h * size
    if one.on_host and one.precision == "fp32":
        bits = 2 if config.attention_dropout else 0
        attention += one.tokens * config.heads * one.mean_length * (FP32 + bits)
    elif config.attention_dropout or one.on_host:
        attention += one.tokens * h * size  # torch's own kernel keeps a second copy of its output
    # Per kept token: the inputs of both norms, the second norm's output, and inside the block
    # the values before and after GELU; for GEGLU both halves, the activated half, their product.
    inner = (4 if config.activation == "geglu" else 2) * config.intermediate * size
    masks = 2 * h * _mask_bytes(one) if config.dropout else 0
    return attention + kept * (2 * h * FP32 + h * size + inner + masks)


def _head(config: BertConfig, vocab_size: int, one: Pass) -> float:
    """Return the bytes of the masked-LM head: transform, logits, softmax and its gradient."""
    h, size = config.hidden, _bytes(one)
    transform = one.predictions * h * (3 * size + FP32)
    if one.on_host and one.precision == "fp32":  # loss and gradients in one pass over chunks
        chunk = min(HOST_CHUNK, one.predictions)
        return transform + FP32 * (chunk * vocab_size + vocab_size * h + one.predictions * h)
    halves = size if size < FP32 else 0
    return transform + one.predictions * vocab_size * (2 * FP32 + halves)
