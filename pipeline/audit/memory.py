"""Tests how much a BERT remembers of its training text, by comparing it with held-out text.

Two tests. *Membership*: can one tell from an example's masked-LM loss that the model was trained on
it? The probability that a random training example has a lower loss than a random held-out one is
0.5 if nobody can. *Extraction*: rare tokens, such as names, are masked and the model restores them.
Training text should not be restored more often than held-out text, where the model can only guess.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from data_prep.examples.chunks import Chunk, ChunkStore
from data_prep.examples.masking import HELD_OUT_MASKS, Vocabulary, mask_rows
from pipeline.data.batch import Batch, collate
from pipeline.inference.fill import Filler

SEED = 0


@dataclass(frozen=True)
class Restored:
    """Rare tokens that the model restored, of those that were masked."""

    right: int
    tokens: int

    @property
    def share(self) -> float:
        return self.right / max(self.tokens, 1)


@dataclass(frozen=True)
class Memory:
    """Results of both tests."""

    examples: tuple[int, int]  # training and held-out examples that were compared
    membership: float  # probability that the training example has the lower loss; 0.5 is chance
    error: float  # standard error of `membership` by chance alone
    train: Restored
    heldout: Restored


def measure(
    filler: Filler, examples: Path, rare_V: NDArray[np.bool_], count: int, seed: int = SEED
) -> Memory:
    """Run both tests on up to `count` random rows of each split."""
    results = {}
    for split in ("train", "heldout"):
        rows = _sample(ChunkStore(examples, split), count, seed)
        losses = _losses(filler, _masked(rows, filler, seed))
        results[split] = losses, _restore(filler, rows, rare_V)
    (train, train_restored), (heldout, heldout_restored) = results["train"], results["heldout"]
    sizes = len(train), len(heldout)
    return Memory(
        sizes, lower_probability(train, heldout), chance_error(*sizes),
        train_restored, heldout_restored,
    )  # fmt: skip


def lower_probability(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return the probability that a value of `first` is lower than one of `second`; ties count
    half (the area under the ROC curve)."""
    ordered = np.sort(second)
    higher = len(ordered) - np.searchsorted(ordered, first, "right")
    ties = np.searchsorted(ordered, first, "right") - np.searchsorted(ordered, first, "left")
    return float((higher + ties / 2).sum() / max(len(first) * len(second), 1))


def chance_error(first: int, second: int) -> float:
    """Return the standard error of `lower_probability` if there is no difference."""
    return float(np.sqrt((first + second + 1) / (12 * max(first * second, 1))))


def _sample(store: ChunkStore, count: int, seed: int) -> list[Chunk]:
    """Return random rows as chunks of one row each, without masks."""
    chosen = np.random.default_rng(seed).permutation(store.rows)[:count]
    rows = []
    for number in np.sort(chosen):
        chunk = int(np.searchsorted(store.first_row, number, "right")) - 1
        row = int(number - store.first_row[chunk])
        rows.append(store.read(chunk).between(row, row + 1))
    return rows


def _masked(rows: list[Chunk], filler: Filler, seed: int) -> list[Chunk]:
    """Mask both splits by one rule, whatever masks are stored."""
    vocabulary = Vocabulary.of(filler.tokenizer)
    return [
        mask_rows(row, seed, np.zeros(1, np.int64), np.array([n]), vocabulary, HELD_OUT_MASKS)
        for n, row in enumerate(rows)
    ]


def _losses(filler: Filler, rows: list[Chunk]) -> NDArray[np.float64]:
    """Return the mean masked-LM loss of each row that has a target."""
    losses = []
    for row in rows:
        batch = collate(row)
        if len(batch.targets_M):
            logits_MV = _logits(filler, batch)[batch.targets_M]
            losses.append(float(F.cross_entropy(logits_MV, batch.labels_M)))
    return np.array(losses)


def _restore(filler: Filler, rows: list[Chunk], rare_V: NDArray[np.bool_]) -> Restored:
    """Mask every rare token of each row at once; count those that the model predicts first."""
    right = total = 0
    for row in rows:
        targets = np.flatnonzero(rare_V[row.tokens])
        if not len(targets):
            continue
        batch = collate(_unmasked(row))
        labels = torch.from_numpy(row.tokens[targets].astype(np.int64))
        places = torch.from_numpy(targets)
        batch.tokens_N[places] = filler.tokenizer.mask
        right += int((_logits(filler, batch)[places].argmax(1) == labels).sum())
        total += len(targets)
    return Restored(right, total)


def _unmasked(row: Chunk) -> Chunk:
    return replace(
        row,
        target=np.zeros(0, np.uint16),
        target_examples=np.zeros(row.examples + 1, np.int32),
        input=np.zeros(0, row.tokens.dtype),
    )


@torch.inference_mode()
def _logits(filler: Filler, batch: Batch) -> torch.Tensor:
    logits_NV, _ = filler.model.eval().predict(
        batch.tokens_N, batch.positions_N, batch.segments_N, batch.lengths
    )
    return logits_NV
