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


def flops_per_token(
    config: BertConfig, vocab_size: int, mean_length: float, predictions_share: float
) -> float:
    """Operations a piece costs in training: forward, and twice that backward.

    Counts what is computed: the last layer's part after attention and the masked-LM head run over
    predicted pieces (and the first of each example) only. `mean_length` is that of the example a
    piece lies in; a multiplication with an addition is two operations.
    """
    hidden = config.hidden
    attention = 3 * hidden**2 + 2 * mean_length * hidden
    after = hidden**2 + _feedforward(config)
    kept = min(1.0, predictions_share + 1 / mean_length)
    head = predictions_share * (hidden**2 + hidden * vocab_size) + hidden**2 / mean_length
    forward = config.layers * attention + (config.layers - 1 + kept) * after + head
    return 3 * 2 * forward


def elmo_flops_per_word(config: ElmoConfig, vocab_size: int) -> float:
    """Operations a word of a stream costs in training: both directions' LSTMs and softmaxes.

    Characters are left out: they are computed once per distinct word of a batch.
    """
    # Four gates see the layer's input and its last output, both of the projection's width.
    layer = 4 * config.cell * 2 * config.projection + config.cell * config.projection
    softmax = min(config.samples or vocab_size, vocab_size) * config.projection
    return 3 * 2 * 2 * (config.layers * layer + softmax)
