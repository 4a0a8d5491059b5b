"""What is trained for: how batches are counted, what the network is given, what its losses mean.

BERT predicts masked pieces and pairs, each row by itself. ELMo predicts the next words of streams,
so it carries the state of its LSTMs from step to step, one array by stream number.

L layers, S streams of this rank, X width of a state
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pipeline.data.batch import Batch
from pipeline.data.streams import WordBatch
from pipeline.models.bert import Losses
from pipeline.models.config import ElmoConfig
from pipeline.models.elmo import DIRECTIONS, ElmoLosses, draw_negatives
from pipeline.training.sums import Sums

AnyBatch = Batch | WordBatch
AnyLosses = Losses | ElmoLosses
Forward = Callable[..., Any]  # the network, inside whatever an engine wraps it in


class Objective(ABC):
    """One rank's side of training; also, with `for_evaluation`, of held-out evaluation."""

    carried: Tensor | None = None  # state that goes from step to step, for the checkpoint

    def begin(self, step: int, device: torch.device) -> None:
        """Get ready for an optimizer step."""
        del step, device  # most have nothing to get ready

    @abstractmethod
    def losses(self, forward: Forward, batch: Any) -> AnyLosses:
        """Summed losses of a batch that is on the device."""

    @abstractmethod
    def count(self, batch: Any) -> Sums:
        """What a batch asks."""

    @abstractmethod
    def mean(self, losses: Any, asked: Sums) -> Tensor:
        """A batch's share of the loss of all that the global batch asks."""

    def end(self, accepted: bool) -> None:
        """An optimizer step is over, and has changed the weights or was dropped."""
        del accepted

    def restore(self, carried: Tensor, rank: int) -> None:
        """Take over the state of all streams that a checkpoint has."""
        raise AssertionError("nothing is carried")

    def for_evaluation(self, device: torch.device) -> "Objective":
        """The same objective on held-out batches, which leave no trace in training."""
        return self


class MaskedPieces(Objective):
    """BERT's: pieces behind masks, and whether two segments belong together."""

    def losses(self, forward: Forward, batch: Batch) -> Losses:
        losses: Losses = forward(batch)
        return losses

    def count(self, batch: Batch) -> Sums:
        return Sums(
            predictions=len(batch.targets_M),
            pairs=int((batch.pair_labels_E >= 0).sum()),
            tokens=len(batch.tokens_N),
        )

    def mean(self, losses: Losses, asked: Sums) -> Tensor:
        return losses.mlm_sum / max(asked.predictions, 1) + losses.pair_sum / max(asked.pairs, 1)


class NextWords(Objective):
    """ELMo's: the next word of every stream, forward and backward."""

    def __init__(self, config: ElmoConfig, vocab_size: int, streams: int, seed: int) -> None:
        self._config, self._vocab_size = config, vocab_size
        self._streams, self._seed = streams, seed
        self._negatives: Any = None  # none: the whole vocabulary is asked
        self._ahead: Tensor | None = None  # the state after the step under way

    def _zeros(self, device: torch.device) -> Tensor:
        width = self._config.cell + self._config.projection
        return torch.zeros(self._config.layers, DIRECTIONS, self._streams, width, device=device)

    def begin(self, step: int, device: torch.device) -> None:
        # Else an empty state, from which sentences are embedded and held-out text is read, would be
        # met at the first step only, and a network without limits may not find its way from there.
        anew = self._config.carry and step % self._config.carry == 0
        if self.carried is None or anew:
            self.carried = self._zeros(device)
        # Another tensor, so that a dropped step leaves no trace in what is carried on.
        self._ahead = torch.empty_like(self.carried)
        seed = seed_of(self._seed, step)  # the same on every rank and in every micro-batch
        self._negatives = draw_negatives(self._config, self._vocab_size, seed, device)

    def losses(self, forward: Forward, batch: WordBatch) -> ElmoLosses:
        assert self.carried is not None and self._ahead is not None
        losses: ElmoLosses
        losses, state_L2SX = forward(batch, self.carried[:, :, batch.streams], self._negatives)
        self._ahead[:, :, batch.streams] = state_L2SX
        return losses

    def count(self, batch: WordBatch) -> Sums:
        words = batch.forward_targets_ST.numel()
        return Sums(words=words, tokens=words)

    def mean(self, losses: ElmoLosses, asked: Sums) -> Tensor:
        return (losses.forward_sum + losses.backward_sum) / (2 * max(asked.words, 1))

    def end(self, accepted: bool) -> None:
        if accepted:
            self.carried = self._ahead

    def restore(self, carried: Tensor, rank: int) -> None:
        first = rank * self._streams
        self.carried = carried[:, :, first : first + self._streams].clone()

    def for_evaluation(self, device: torch.device) -> "NextWords":
        """Exact, over the whole vocabulary, from streams that begin with nothing."""
        exact = NextWords(self._config, self._vocab_size, self._streams, self._seed)
        exact.carried = exact._ahead = self._zeros(device)
        return exact


def seed_of(*parts: int) -> int:
    """A seed for torch from counters, so that no generator's state needs saving."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
