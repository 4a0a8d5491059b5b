"""Options of BERT; the YAML files of the group `model` set their values."""

from dataclasses import dataclass

from data_prep.errors import UsageError
from data_prep.fields import result
from pipeline.models.config import THETA, ModelConfig

SEGMENTS = 2  # number of segment embeddings


@dataclass
class BertConfig(ModelConfig):
    """BERT as published; modern variants are options."""

    layers: int = result(12, "encoder layers", at_least=1, at_most=1000)
    hidden: int = result(768, "width of the hidden states", at_least=1, at_most=1 << 16)
    heads: int = result(12, "attention heads", at_least=1, at_most=1 << 16)
    intermediate: int = result(
        3072, "width inside the feed-forward block", at_least=1, at_most=1 << 18
    )
    max_positions: int = result(
        512, "largest length of an example in tokens", at_least=8, at_most=1 << 20
    )
    dropout: float = result(
        0.1, "dropout of embeddings and block outputs", at_least=0.0, at_most=0.9
    )
    attention_dropout: float = result(
        0.1, "dropout of attention probabilities", at_least=0.0, at_most=0.9
    )
    norm: str = result("post", "layer norm after (BERT) or before blocks", choices=("post", "pre"))
    positions: str = result(
        "learned", "position encoding", choices=("learned", "sinusoidal", "rotary")
    )
    rotary_base: float = result(
        THETA,
        "longest wavelength of rotary positions, in units of 2π positions, in layers with global "
        "attention; in local layers it is 10,000",
        at_least=1.0,
        at_most=1e12,
        is_later=True,
    )
    global_every: int = result(
        1,
        "every n-th layer, from the first on, attends to the whole example; the others are local",
        at_least=1,
        at_most=1000,
        is_later=True,
    )
    local_window: int = result(
        128,
        "tokens that a local layer sees around a token, half of them on each side",
        at_least=2,
        at_most=1 << 20,
        is_later=True,
    )
    activation: str = result(
        "gelu", "feed-forward activation; geglu is the gated form", choices=("gelu", "geglu")
    )
    biases: bool = result(True, "use biases in linear layers and norms")
    segments: bool = result(
        True, "use segment embeddings, which distinguish first and second segment", is_later=True
    )
    tied: bool = result(True, "use the token embeddings as the matrix of the masked-LM head")
    norm_eps: float = result(
        1e-12, "epsilon added to the variance in layer norm", at_least=0.0, at_most=1.0
    )
    init_std: float = result(
        0.02, "standard deviation of the initial weights", at_least=1e-6, at_most=10.0
    )

    def window(self, layer: int) -> int | None:
        """Return how many tokens on each side layer number `layer` sees; None: all."""
        return self.local_window // 2 if layer % self.global_every else None

    def check(self) -> None:
        """Raise `UsageError` if heads do not divide the width, or a rotary head's width is odd, or
        the window of local layers is."""
        if self.local_window % 2:
            raise UsageError(f"model.local_window={self.local_window}: must be even")
        if self.hidden % self.heads:
            fits = [heads for heads in range(1, self.hidden + 1) if self.hidden % heads == 0]
            raise UsageError(
                f"model.heads={self.heads}: must divide model.hidden={self.hidden}; "
                f"fits: {', '.join(map(str, fits[:12]))}"
            )
        if self.positions == "rotary" and self.hidden // self.heads % 2:
            raise UsageError(
                f"model.heads={self.heads}: rotary positions need an even width of each head, "
                f"not model.hidden={self.hidden} / {self.heads} = {self.hidden // self.heads}"
            )
