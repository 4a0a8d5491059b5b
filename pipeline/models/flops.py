"""Computes the cost of a model: number of parameters and FLOPs of training."""

from pipeline.models.config import SEGMENTS, BertConfig, ElmoConfig


def _feedforward(config: BertConfig) -> int:
    matrices = 3 if config.activation == "geglu" else 2
    return matrices * config.hidden * config.intermediate


def parameters(config: BertConfig, vocab_size: int) -> int:
    """Return the number of weights of BertForPretraining with both heads; tied ones count once."""
    hidden = config.hidden
    norm = hidden * (2 if config.biases else 1)
    gate = 2 if config.activation == "geglu" else 1
    biases = (3 + 1 + 1) * hidden + gate * config.intermediate if config.biases else 0
    layer = 4 * hidden**2 + _feedforward(config) + biases + 2 * norm
    positions = config.max_positions if config.positions == "learned" else 0
    segments = SEGMENTS if config.segments else 0
    embeddings = (vocab_size + positions + segments) * hidden + norm
    dense = hidden**2 + (hidden if config.biases else 0)
    decoder = 0 if config.tied else vocab_size * hidden
    heads = dense + (dense + norm + decoder + vocab_size) + (2 * hidden + 2)
    # Pre-norm adds the final norm and omits the first layer's, so the number is equal.
    return embeddings + config.layers * layer + heads


def model_flops_per_token(
    config: BertConfig, vocab_size: int, mean_length: float, predictions_share: float
) -> float:
    """Return the FLOPs that the model requires per token of training: forward, and backward twice
    that, regardless of how they are computed.

    The definition for utilisation (Chowdhery et al. 2022, appendix B): every layer over every
    token, the masked-LM head over predicted tokens. `mean_length` is the mean number of tokens per
    example. A multiplication with an addition counts as two FLOPs.
    """
    hidden = config.hidden
    layer = 3 * hidden**2 + 2 * mean_length * hidden + _after_attention(config)
    head = predictions_share * (hidden**2 + hidden * vocab_size) + hidden**2 / mean_length
    return 3 * 2 * (config.layers * layer + head)


def flops_per_token(
    config: BertConfig, vocab_size: int, mean_length: float, predictions_share: float
) -> float:
    """Return the FLOPs that are actually computed per token of training.

    Fewer than `model_flops_per_token`: the part of the last layer after attention runs only over
    predicted tokens and the first token of each example.
    """
    kept = min(1.0, predictions_share + 1 / mean_length)
    needed = model_flops_per_token(config, vocab_size, mean_length, predictions_share)
    return needed - 3 * 2 * (1 - kept) * _after_attention(config)


def _after_attention(config: BertConfig) -> int:
    return config.hidden**2 + _feedforward(config)


def elmo_flops_per_word(config: ElmoConfig, vocab_size: int) -> float:
    """Return the FLOPs per word of training: LSTMs and softmaxes of both directions.

    The character encoder is left out: it runs once per distinct word of a batch.
    """
    # Four gates read the layer's input and previous output, both of the projection's width.
    layer = 4 * config.cell * 2 * config.projection + config.cell * config.projection
    softmax = min(config.samples or vocab_size, vocab_size) * config.projection
    return 3 * 2 * 2 * (config.layers * layer + softmax)
