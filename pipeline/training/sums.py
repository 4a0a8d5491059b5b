"""Sums of losses, right answers and what they are out of; means are taken only when they are told.

Sums add up over micro-batches, ranks and steps, whatever their sizes; means do not.
"""

import math
from dataclasses import asdict, dataclass, fields


@dataclass(frozen=True)
class Sums:
    """Over some rows: losses of BERT's or of ELMo's objectives, and how many were asked."""

    mlm_sum: float = 0.0
    mlm_correct: float = 0.0
    pair_sum: float = 0.0
    pair_correct: float = 0.0
    predictions: float = 0.0
    pairs: float = 0.0
    tokens: float = 0.0
    forward_sum: float = 0.0
    backward_sum: float = 0.0
    words: float = 0.0  # to be predicted, in each direction

    def __add__(self, other: "Sums") -> "Sums":
        mine, others = asdict(self), asdict(other)
        return Sums(**{key: mine[key] + others[key] for key in mine})

    def values(self) -> list[float]:
        """In the order of the fields."""
        return [getattr(self, item.name) for item in fields(self)]

    @property
    def loss(self) -> float:
        """The training loss: the sum of BERT's means, those that were asked; the mean of ELMo's."""
        if self.words:
            return (self.forward_sum + self.backward_sum) / (2 * self.words)
        mlm = self.mlm_sum / self.predictions if self.predictions else 0.0
        return mlm + (self.pair_sum / self.pairs if self.pairs else 0.0)

    def means(self) -> dict[str, float | None]:
        """Losses, accuracies and perplexity; None where nothing was asked."""
        if self.words:
            return {
                "loss": self.loss,
                "forward_loss": self.forward_sum / self.words,
                "backward_loss": self.backward_sum / self.words,
                "forward_perplexity": perplexity(self.forward_sum / self.words),
                "backward_perplexity": perplexity(self.backward_sum / self.words),
                "perplexity": perplexity(self.loss),  # of the words of both directions
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
    """How many equally likely answers a loss in nats is worth; a loss that is not finite stays."""
    return math.exp(min(loss, 700.0)) if math.isfinite(loss) else loss
