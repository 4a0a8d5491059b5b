"""What a model costs by arithmetic: parameters, and floating-point operations of training."""

from pipeline.models.config import SEGMENTS, BertConfig, ElmoConfig


def _feedforward(config: BertConfig) -> int:
    matrices = 3 if config.activation == "geglu" else 2
    return matrices * config.hidden * config.intermediate


def parameters(config: BertConfig, vocab_size: int) -> int:
    """Weights of BertForPretraining, both heads included; tied matrices count once."""
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
    # Pre-norm has one norm more, the final, and one less, the first layer's.
    return embeddings + config.layers * layer + heads


def model_flops_per_token(
    config: BertConfig, vocab_size: int, mean_length: float, predictions_share: float
) -> float:
    """Operations a piece needs in training, however they are computed: forward, twice backward.

    What utilisation is measured by (Chowdhery et al. 2022, appendix B): every layer over every
    piece, the masked-LM head over predicted pieces. `mean_length` is that of the example a piece
    lies in; a multiplication with an addition is two operations.
    """
    hidden = config.hidden
    layer = 3 * hidden**2 + 2 * mean_length * hidden + _after_attention(config)
    head = predictions_share * (hidden**2 + hidden * vocab_size) + hidden**2 / mean_length
    return 3 * 2 * (config.layers * layer + head)


def flops_per_token(
    config: BertConfig, vocab_size: int, mean_length: float, predictions_share: float
) -> float:
    """Operations that are computed for a piece.

    Fewer than the model's: the last layer's part after attention runs over predicted pieces (and
    the first of each example) only.
    """
    kept = min(1.0, predictions_share + 1 / mean_length)
    needed = model_flops_per_token(config, vocab_size, mean_length, predictions_share)
    return needed - 3 * 2 * (1 - kept) * _after_attention(config)


def _after_attention(config: BertConfig) -> int:
    return config.hidden**2 + _feedforward(config)


def elmo_flops_per_word(config: ElmoConfig, vocab_size: int) -> float:
    """Operations a word of a stream costs in training: both directions' LSTMs and softmaxes.

    Characters are left out: they are computed once per distinct word of a batch.
    """
    # Four gates see the layer's input and its last output, both of the projection's width.
    layer = 4 * config.cell * 2 * config.projection + config.cell * config.projection
    softmax = min(config.samples or vocab_size, vocab_size) * config.projection
    return 3 * 2 * 2 * (config.layers * layer + softmax)
