"""BERT's objective: masked language modelling and pairs of segments. Rows are independent."""

from torch import Tensor

from pipeline.data.batch import Batch
from pipeline.models.bert.network import Losses
from pipeline.models.objective import Forward, Objective
from pipeline.models.sums import Sums, perplexity


class MaskedTokens(Objective):
    """Predicts masked tokens, and whether two segments belong together."""

    def losses(self, forward: Forward, batch: Batch) -> Losses:
        losses: Losses = forward(batch)
        return losses

    def count(self, batch: Batch) -> Sums:
        return Sums(
            {
                "predictions": len(batch.targets_M),
                "pairs": int((batch.pair_labels_E.numpy() >= 0).sum()),
                "tokens": len(batch.tokens_N),
            }
        )

    def mean(self, losses: Losses, asked: Sums) -> Tensor:
        masked = losses.mlm_sum / max(asked["predictions"], 1)
        return masked + losses.pair_sum / max(asked["pairs"], 1)

    def loss(self, sums: Sums) -> float:
        masked, pair = sums.mean("mlm_sum", "predictions"), sums.mean("pair_sum", "pairs")
        return (0.0 if masked is None else masked) + (0.0 if pair is None else pair)

    def metrics(self, sums: Sums) -> dict[str, float | None]:
        masked = sums.mean("mlm_sum", "predictions")
        return {
            "loss": self.loss(sums),
            "mlm_loss": masked,
            "mlm_accuracy": sums.mean("mlm_correct", "predictions"),
            "pair_loss": sums.mean("pair_sum", "pairs"),
            "pair_accuracy": sums.mean("pair_correct", "pairs"),
            "perplexity": None if masked is None else perplexity(masked),
        }
