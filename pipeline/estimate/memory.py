"""What training holds in memory, by arithmetic: a rank's part of the model, and activations.

Bytes an element: W = 4 in sums and norms, which stay in fp32; B = 4, or 2 under bf16-mixed, where
matrix products are computed. h hidden width, i width inside the feed-forward block.
"""

from dataclasses import dataclass

from pipeline.models.config import BertConfig
from pipeline.training.config import ZERO_BUCKET

FP32 = 4
HOST_CHUNK = 512  # predictions whose logits a CPU holds at once; see models.losses


@dataclass(frozen=True)
class Memory:
    """Bytes on one device, by part."""

    weights: float
    gradients: float
    optimizer: float
    exchange: float  # buffers in which gradients and weights travel
    activations: float = 0.0

    @property
    def total(self) -> float:
        states = self.weights + self.gradients + self.optimizer
        return states + self.exchange + self.activations


def of_the_model(parameters: int, strategy: str, ranks: int, precision: str) -> Memory:
    """A rank's weights, gradients and AdamW moments (fp32), and what the strategy adds.

    ZeRO keeps a second copy of the weights its rank updates, divided over the ranks; ZeRO 3 divides
    the first copy too, but gathers all of a model of this size while a step is under way.
    """
    whole = FP32 * parameters
    part = whole / ranks
    copies = whole / 2 if precision == "bf16-mixed" else 0.0  # autocast's, during a step
    buckets = 2.0 * FP32 * ZERO_BUCKET  # one fills while the other travels
    match strategy:
        case "zero1":
            return Memory(whole + part + copies, whole, 2 * part, buckets)
        case "zero2":
            return Memory(whole + part + copies, part, 2 * part, buckets)
        case "zero3":
            return Memory(2 * part + copies, part, 2 * part, buckets + whole)
        case _:  # single, and ddp, whose gradients are views of what is exchanged
            return Memory(whole + copies, whole, 2 * whole, 0.0)


@dataclass(frozen=True)
class Pass:
    """One forward pass of a rank: what goes in, and how it is computed."""

    tokens: float
    mean_length: float  # of the example a piece lies in
    predictions: float
    precision: str
    on_host: bool = False  # on a CPU
    checkpointing: bool = False


def activations(config: BertConfig, vocab_size: int, one: Pass) -> float:
    """Bytes kept from the forward pass for the backward pass, the vocabulary's logits included."""
    layers = [_layer(config, one, kept=one.tokens)] * (config.layers - 1)
    # The last layer goes on, after attention, with predicted pieces and each example's first.
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
    """One layer: attention over all pieces, what follows it over those `kept`."""
    h, size = config.hidden, _bytes(one)
    # The input of the projections, queries, keys, values, and attention's output.
    attention = one.tokens * 5 * h * size
    if one.on_host and one.precision == "fp32":
        bits = 2 if config.attention_dropout else 0
        attention += one.tokens * config.heads * one.mean_length * (FP32 + bits)
    elif config.attention_dropout or one.on_host:
        attention += one.tokens * h * size  # torch's own kernel keeps its output once more
    # Both norms' inputs, the second's output, and inside the block: before and after GELU, or
    # both halves, the activated half and their product.
    inner = (4 if config.activation == "geglu" else 2) * config.intermediate * size
    masks = 2 * h * _mask_bytes(one) if config.dropout else 0
    return attention + kept * (2 * h * FP32 + h * size + inner + masks)


def _head(config: BertConfig, vocab_size: int, one: Pass) -> float:
    """The masked-LM head: its transform, then logits, their softmax and its gradient."""
    h, size = config.hidden, _bytes(one)
    transform = one.predictions * h * (3 * size + FP32)
    if one.on_host and one.precision == "fp32":  # loss and gradients in one pass over chunks
        chunk = min(HOST_CHUNK, one.predictions)
        return transform + FP32 * (chunk * vocab_size + vocab_size * h + one.predictions * h)
    halves = size if size < FP32 else 0
    return transform + one.predictions * vocab_size * (2 * FP32 + halves)
