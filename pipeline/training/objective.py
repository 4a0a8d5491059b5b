"""Training objectives: masked language modelling (BERT) and next words in two directions (ELMo).

An objective counts the predictions of a batch, calls the network, and turns summed losses into the
loss to differentiate. BERT's rows are independent. ELMo reads endless streams, so its objective
carries the LSTM state of every stream from step to step, indexed by stream number.

L layers, S streams of this rank, X width of a state (memory and output)
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
Forward = Callable[..., Any]  # the network, inside the engine's wrapper (DDP, DeepSpeed) if any


class Objective(ABC):
    """Computes the loss on one rank. Per step: `begin`, then `losses` and `mean` per micro-batch,
    then `end`. No method communicates with other ranks."""

    carried: Tensor | None = None  # state kept between steps; saved in checkpoints

    def begin(self, step: int, device: torch.device) -> None:
        """Prepare for optimizer step number `step`."""
        del step, device

    @abstractmethod
    def losses(self, forward: Forward, batch: Any) -> AnyLosses:
        """Run the network on a batch that is on the device; return its summed losses."""

    @abstractmethod
    def count(self, batch: Any) -> Sums:
        """Count the predictions and tokens of a batch; the losses of the result are zero."""

    @abstractmethod
    def mean(self, losses: Any, asked: Sums) -> Tensor:
        """Divide a micro-batch's summed losses by the counts of the global batch, `asked`.

        Added over all micro-batches and ranks, the results are the loss of the global batch.
        """

    def end(self, accepted: bool) -> None:
        """Finish an optimizer step. `accepted` is False if it was dropped."""
        del accepted

    def restore(self, carried: Tensor, rank: int) -> None:
        """Load the carried state of a checkpoint, which holds the streams of all ranks."""
        raise AssertionError("nothing is carried")

    def for_evaluation(self, device: torch.device) -> "Objective":
        """Return an objective for held-out batches that does not affect training."""
        return self


class MaskedPieces(Objective):
    """BERT's objective: masked tokens, and whether two segments belong together."""

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
    """ELMo's objective: the next word of every stream, forward and backward."""

    def __init__(self, config: ElmoConfig, vocab_size: int, streams: int, seed: int) -> None:
        self._config, self._vocab_size = config, vocab_size
        self._streams, self._seed = streams, seed
        self._negatives: Any = None  # None: the softmax is over the whole vocabulary
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
        """Return an objective with an exact softmax and streams that start from a zero state."""
        exact = NextWords(self._config, self._vocab_size, self._streams, self._seed)
        exact.carried = exact._ahead = self._zeros(device)
        return exact


def seed_of(*parts: int) -> int:
    """Hash counters to a seed for torch. Checkpoints then need not save a generator's state."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
