"""Running sums of losses, correct predictions and their counts.

Sums can be added over micro-batches, ranks and steps of any size; means cannot. Means are computed
only when reported.
"""

import math
from dataclasses import asdict, dataclass, fields


@dataclass(frozen=True)
class Sums:
    """Summed losses of BERT's or ELMo's objective over some rows, with their counts.

    Fields of the other model stay zero.
    """

    mlm_sum: float = 0.0
    mlm_correct: float = 0.0
    pair_sum: float = 0.0
    pair_correct: float = 0.0
    predictions: float = 0.0
    pairs: float = 0.0
    tokens: float = 0.0
    forward_sum: float = 0.0
    backward_sum: float = 0.0
    words: float = 0.0  # predicted words per direction

    def __add__(self, other: "Sums") -> "Sums":
        mine, others = asdict(self), asdict(other)
        return Sums(**{key: mine[key] + others[key] for key in mine})

    def values(self) -> list[float]:
        """Return the values in the order of the fields."""
        return [getattr(self, item.name) for item in fields(self)]

    @property
    def loss(self) -> float:
        """The training loss: BERT's mean masked-LM loss plus its mean pair loss (zero without
        pairs); for ELMo the mean over words of both directions."""
        if self.words:
            return (self.forward_sum + self.backward_sum) / (2 * self.words)
        mlm = self.mlm_sum / self.predictions if self.predictions else 0.0
        return mlm + (self.pair_sum / self.pairs if self.pairs else 0.0)

    def means(self) -> dict[str, float | None]:
        """Return losses, accuracies and perplexity by name; None where there was no prediction."""
        if self.words:
            return {
                "loss": self.loss,
                "forward_loss": self.forward_sum / self.words,
                "backward_loss": self.backward_sum / self.words,
                "forward_perplexity": perplexity(self.forward_sum / self.words),
                "backward_perplexity": perplexity(self.backward_sum / self.words),
                "perplexity": perplexity(self.loss),  # over the words of both directions
            }

        def mean(total: float, count: float) -> float | None:
            return total / count if count else None

        return {
            "loss": self.loss,
            "mlm_loss": mean(self.mlm_sum, self.predictions),
            "mlm_accuracy": mean(self.mlm_correct, self.predictions),
            "pair_loss": mean(self.pair_sum, self.pairs),
            "pair_accuracy": mean(self.pair_correct, self.pairs),
            "perplexity": perplexity(self.mlm_sum / self.predictions) if self.predictions else None,
        }


def perplexity(loss: float) -> float:
    """Return exp(loss) for a loss in nats, without overflow; a loss that is not finite is returned
    unchanged."""
    return math.exp(min(loss, 700.0)) if math.isfinite(loss) else loss
