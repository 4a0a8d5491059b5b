"""The cost of training an ELMo. Its memory is not known by arithmetic yet."""

from dataclasses import dataclass

from data_prep.errors import UsageError
from pipeline.models.cost import Cost, Pass
from pipeline.models.elmo.config import ElmoConfig


@dataclass(frozen=True)
class ElmoCost(Cost):
    """The cost of ElmoForPretraining."""

    config: ElmoConfig
    vocab_size: int

    def parameters(self) -> int:
        raise _unknown()

    def flops_per_token(self, mean_length: float = 0.0, predicted_share: float = 1.0) -> float:
        """Return the FLOPs per word: LSTMs and softmaxes of both directions.

        Neither sentence length nor masks change them. The character encoder is left out: it runs
        once per distinct word of a batch.
        """
        config = self.config
        # Four gates read the layer's input and previous output, both of the projection's width.
        layer = 4 * config.cell * 2 * config.projection + config.cell * config.projection
        softmax = min(config.samples or self.vocab_size, self.vocab_size) * config.projection
        return 3 * 2 * 2 * (config.layers * layer + softmax)

    def activation_bytes(self, one: Pass) -> float:
        raise _unknown()

    def largest_product(self) -> tuple[int, int]:
        """Return the product of an LSTM layer: its input with the four gates."""
        return self.config.projection, 4 * self.config.cell


def _unknown() -> UsageError:
    return UsageError("model.kind=elmo: only BERT's arithmetic is known here")
