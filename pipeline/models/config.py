"""Model configurations; the YAML group model extends these."""

from dataclasses import dataclass

from data_prep.errors import UsageError
from data_prep.fields import result


@dataclass
class ModelConfig:
    """What all encoders share; the group's YAML chooses the kind."""

    kind: str = result("bert", "the architecture", choices=("bert",))

    def check(self) -> None:
        """Refuse combinations that contradict each other."""


@dataclass
class BertConfig(ModelConfig):
    """BERT as published, and its modern form as options of the same encoder."""

    layers: int = result(12, "encoder layers", at_least=1)
    hidden: int = result(768, "width of the hidden states", at_least=1)
    heads: int = result(12, "attention heads", at_least=1)
    intermediate: int = result(3072, "width inside the feed-forward block", at_least=1)
    max_positions: int = result(512, "positions the model can tell apart", at_least=8)
    dropout: float = result(0.1, "of embeddings and block outputs", at_least=0.0, at_most=0.9)
    attention_dropout: float = result(0.1, "of attention probabilities", at_least=0.0, at_most=0.9)
    norm: str = result("post", "layer norm after (BERT) or before blocks", choices=("post", "pre"))
    positions: str = result(
        "learned", "how positions are told", choices=("learned", "sinusoidal", "rotary")
    )
    activation: str = result(
        "gelu", "feed-forward activation; geglu is the gated form", choices=("gelu", "geglu")
    )
    biases: bool = result(True, "biases in linear layers and norms")
    tied: bool = result(True, "the masked-LM head shares the word embeddings' matrix")
    norm_eps: float = result(1e-12, "added to the variance in layer norm")
    init_std: float = result(0.02, "deviation of the initial weights", at_least=0.0)

    def check(self) -> None:
        """Refuse widths that heads do not divide."""
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
