"""ELMo's objective: the next word of endless streams, in both directions.

It carries the LSTM state of every stream from step to step, indexed by stream number.

L layers, S streams of this rank, X width of a state (memory and output)
"""

import torch
from torch import Tensor

from pipeline.data.streams import WordBatch
from pipeline.models.elmo.config import ElmoConfig
from pipeline.models.elmo.network import DIRECTIONS, ElmoLosses, draw_negatives
from pipeline.models.elmo.sampled_softmax import Negatives
from pipeline.models.objective import Forward, Objective, seed_of
from pipeline.models.sums import Sums, perplexity


class NextWords(Objective):
    """Predicts the next word of every stream, forward and backward."""

    def __init__(self, config: ElmoConfig, vocab_size: int, streams: int, seed: int) -> None:
        self._config, self._vocab_size = config, vocab_size
        self._streams, self._seed = streams, seed
        self._negatives: Negatives | None = None  # None: softmax over the whole vocabulary
        self._ahead: Tensor | None = None  # LSTM state after the current step, like `carried`

    def _zeros(self, device: torch.device) -> Tensor:
        width = self._config.cell + self._config.projection
        return torch.zeros(self._config.layers, DIRECTIONS, self._streams, width, device=device)

    def begin(self, step: int, device: torch.device) -> None:
        every = self._config.forget_every
        if self.carried is None or (every and step % every == 0):
            self.carried = self._zeros(device)
        # A separate tensor, so that a dropped step leaves `carried` unchanged.
        self._ahead = torch.empty_like(self.carried)
        seed = seed_of(self._seed, step)  # equal on every rank and in every micro-batch
        self._negatives = draw_negatives(self._config, self._vocab_size, seed, device)

    def losses(self, forward: Forward, batch: WordBatch) -> ElmoLosses:
        assert self.carried is not None and self._ahead is not None
        losses: ElmoLosses
        losses, state_L2SX = forward(batch, self.carried[:, :, batch.streams], self._negatives)
        self._ahead[:, :, batch.streams] = state_L2SX
        return losses

    def count(self, batch: WordBatch) -> Sums:
        words = batch.forward_targets_ST.numel()  # per direction
        return Sums({"words": words, "tokens": words})

    def mean(self, losses: ElmoLosses, asked: Sums) -> Tensor:
        return (losses.forward_sum + losses.backward_sum) / (2 * max(asked["words"], 1))

    def loss(self, sums: Sums) -> float:
        return (sums["forward_sum"] + sums["backward_sum"]) / (2 * max(sums["words"], 1))

    def metrics(self, sums: Sums) -> dict[str, float | None]:
        forward, backward = (sums.mean(f"{way}_sum", "words") for way in ("forward", "backward"))
        if forward is None or backward is None:
            return dict.fromkeys(METRICS)
        loss = self.loss(sums)  # over the words of both directions
        values = (loss, forward, backward, *map(perplexity, (forward, backward, loss)))
        return dict(zip(METRICS, values, strict=True))

    def end(self, accepted: bool) -> None:
        if accepted:
            self.carried = self._ahead

    def restore(self, carried: Tensor) -> None:
        self.carried = carried

    def for_evaluation(self, device: torch.device) -> "NextWords":
        """Return an objective with an exact softmax and streams that start from a zero state."""
        exact = NextWords(self._config, self._vocab_size, self._streams, self._seed)
        exact.carried = exact._ahead = self._zeros(device)
        return exact


METRICS = (
    "loss",
    "forward_loss",
    "backward_loss",
    "forward_perplexity",
    "backward_perplexity",
    "perplexity",
)
