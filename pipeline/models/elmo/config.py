"""Options of ELMo; the YAML files of the group `model` set their values."""

from dataclasses import dataclass

from data_prep.errors import UsageError
from data_prep.fields import result
from pipeline.models.config import ModelConfig

FILTERS = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]
MOST_FILTERS = 1 << 16  # of one width


@dataclass
class ElmoConfig(ModelConfig):
    """ELMo as published (Peters et al. 2018, section 4; bilm-tf's options)."""

    kind: str = result("elmo", "architecture", choices=("bert", "elmo"))
    layers: int = result(2, "LSTM layers per direction", at_least=1, at_most=100)
    cell: int = result(4096, "width of an LSTM's memory cell", at_least=2, at_most=1 << 16)
    projection: int = result(
        512, "width of word vectors and LSTM outputs after projection; hidden states have twice "
        "that",
        at_least=1, at_most=1 << 16,
    )  # fmt: skip
    cell_clip: float = result(
        3.0, "memory values are clipped to this magnitude; 0 does not clip", at_least=0.0
    )
    projection_clip: float = result(
        3.0, "LSTM outputs are clipped to this magnitude; 0 does not clip", at_least=0.0
    )
    dropout: float = result(
        0.1, "dropout of layer inputs and of the output", at_least=0.0, at_most=0.9
    )
    character_dim: int = result(16, "width of a character embedding", at_least=1, at_most=4096)
    max_characters: int = result(
        50, "most bytes per word, its begin and end marks included", at_least=3, at_most=1000
    )
    filters: list[list[int]] = result(
        FILTERS, "character convolutions as pairs [width, number of filters]"
    )
    highways: int = result(2, "highway layers over the convolutions", at_least=0, at_most=100)
    activation: str = result("relu", "activation of the convolutions", choices=("relu", "tanh"))
    window: int = result(
        20, "words per stream and step; gradients flow back through these only", at_least=1
    )
    forget_every: int = result(
        0, "reset the LSTM state of all streams every so many steps, because at inference every "
        "text starts from a zero state; 0: never, as published",
        at_least=0, is_later=True,
    )  # fmt: skip
    samples: int = result(
        8192, "negative samples of the training softmax; 0: the whole vocabulary", at_least=0
    )

    def samples_words(self, vocab_size: int) -> bool:
        """Return True if the training softmax is over sampled words, not the whole vocabulary."""
        return 0 < self.samples < vocab_size

    def check(self) -> None:
        """Raise `UsageError` for contradicting widths."""
        if self.projection >= self.cell:
            raise UsageError(
                f"model.projection={self.projection}: must be less than model.cell={self.cell}"
            )
        for each in self.filters:
            is_pair = len(each) == 2 and min(each) >= 1
            if not is_pair or each[0] > self.max_characters or each[1] > MOST_FILTERS:
                raise UsageError(
                    f"model.filters: {each} is no pair [width, number] with a width up to "
                    f"model.max_characters={self.max_characters} and a number up to {MOST_FILTERS}"
                )
        if not self.filters:
            raise UsageError("model.filters=[]: words need at least one pair [width, number]")
