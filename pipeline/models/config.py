"""Model configurations; the YAML group model extends these."""

from dataclasses import dataclass

from data_prep.errors import UsageError
from data_prep.fields import result


@dataclass
class ModelConfig:
    """What all encoders share; the group's YAML chooses the kind."""

    kind: str = result("bert", "the architecture", choices=("bert", "elmo"))

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


FILTERS = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]


@dataclass
class ElmoConfig(ModelConfig):
    """ELMo as published (Peters et al. 2018, section 4; bilm-tf's options)."""

    kind: str = result("elmo", "the architecture", choices=("bert", "elmo"))
    layers: int = result(2, "LSTM layers of a direction", at_least=1)
    cell: int = result(4096, "width of an LSTM's memory", at_least=2)
    projection: int = result(
        512, "width that words and LSTM outputs are projected to; hidden states have twice that",
        at_least=1,
    )  # fmt: skip
    cell_clip: float = result(3.0, "largest memory value; 0 does not clip", at_least=0.0)
    projection_clip: float = result(3.0, "largest output value; 0 does not clip", at_least=0.0)
    dropout: float = result(0.1, "of layer inputs and of the output", at_least=0.0, at_most=0.9)
    character_dim: int = result(16, "width of a character's embedding", at_least=1)
    max_characters: int = result(50, "bytes of a word, its marks included", at_least=3)
    filters: list[list[int]] = result(FILTERS, "[width, how many] of the character convolutions")
    highways: int = result(2, "highway layers over the convolutions", at_least=0)
    activation: str = result("relu", "of the convolutions", choices=("relu", "tanh"))
    window: int = result(20, "words of a stream that gradients flow back through", at_least=1)
    carry: int = result(
        0,
        "windows after which all streams begin with an empty state again, as sentences do when "
        "they are embedded; 0: never, as published",
        at_least=0,
    )
    samples: int = result(
        8192, "words the training softmax is sampled from; 0: the whole vocabulary", at_least=0
    )

    def check(self) -> None:
        """Refuse widths that contradict each other."""
        if self.projection >= self.cell:
            raise UsageError(
                f"model.projection={self.projection}: must be less than model.cell={self.cell}"
            )
        for each in self.filters:
            if len(each) != 2 or min(each) < 1 or each[0] > self.max_characters:
                raise UsageError(
                    f"model.filters: {each} is no pair [width, how many] with a width up to "
                    f"model.max_characters={self.max_characters}"
                )
        if not self.filters:
            raise UsageError("model.filters=[]: words need at least one pair [width, how many]")


KINDS: dict[str, type[ModelConfig]] = {"bert": BertConfig, "elmo": ElmoConfig}
