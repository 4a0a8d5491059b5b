"""The softmax over words of both directions: sampled in training, exact in evaluation.

Sampling draws K distinct words with exponential clocks. Word w with log-uniform probability p_w
gets a random time from an exponential distribution of rate p_w, and the K smallest times are drawn.
Given the time t of the next word, each word was drawn independently with probability
q_w = 1 - exp(-p_w t). This is the expected count that corrects its logit (Jean et al. 2015;
TensorFlow's unique sampler computes the same from its number of tries). One vectorised draw needs
no rejections and no loop.

M predictions, V vocabulary, K sampled words, P width, R and W: chunks of M and V
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.models.losses import masked_loss, sampled_loss
from pipeline.models.row_gradients import RowGradients, read_rows

ROWS, WORDS = 1024, 8192  # predictions and words per chunk of logits in evaluation


@dataclass(frozen=True)
class Negatives:
    """The words sampled for one step, equal on every rank."""

    words_K: Tensor  # distinct ids
    time: Tensor  # word w was drawn with probability 1 - exp(-p_w · time)

    @classmethod
    def draw(cls, count: int, vocab_size: int, seed: int, device: torch.device) -> "Negatives":
        """Draw `count` distinct words of a vocabulary that is sorted by descending frequency."""
        assert 0 < count < vocab_size, "the whole vocabulary needs no sample"
        words_V = torch.arange(vocab_size, device=device)
        clocks_V = torch.empty(vocab_size, dtype=widest(device), device=device)
        clocks_V.exponential_(generator=_seeded(device, seed))
        clocks_V /= log_uniform(words_V, vocab_size)
        times, words = clocks_V.topk(count + 1, largest=False)
        return cls(words[:-1], times[-1])

    def log_counts(self, words: Tensor, vocab_size: int) -> Tensor:
        """Return the logarithm of each word's expected count among the drawn words."""
        return torch.log(-torch.expm1(-log_uniform(words, vocab_size) * self.time)).float()


def _seeded(device: torch.device, seed: int) -> torch.Generator:
    return torch.Generator(device).manual_seed(seed)


def widest(device: torch.device) -> torch.dtype:
    """Return the widest floating-point type of a device; Apple's mps has no doubles."""
    return torch.float32 if device.type == "mps" else torch.float64


def log_uniform(words: Tensor, vocab_size: int) -> Tensor:
    """Return the probability of word w: log((w + 2) / (w + 1)) / log(V + 1), close to Zipf's
    law."""
    return torch.log1p(1 / (words.to(widest(words.device)) + 1)) / math.log(vocab_size + 1)


class WordSoftmax(nn.Module):
    """Softmax layer that returns the summed cross-entropy of each direction's next words."""

    def __init__(self, vocab_size: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, width).normal_(std=width**-0.5))
        self.bias = nn.Parameter(torch.zeros(vocab_size))
        self.row_gradients: RowGradients | None = None  # if set, it gets the weight's gradients

    def forward(
        self, xs: list[Tensor], targets: list[Tensor], negatives: Negatives | None
    ) -> list[Tensor]:
        """Return the loss of each direction, from its outputs x_MP and targets_M.

        With `negatives` the softmax is over target and sample; None: over the whole vocabulary.
        """
        if negatives is not None:
            return self._sampled(xs, targets, negatives)
        if torch.is_grad_enabled():
            return [
                masked_loss(x_MP, self.weight, self.bias, targets_M)[0]
                for x_MP, targets_M in zip(xs, targets, strict=True)
            ]
        return [self._exact(x_MP, targets_M) for x_MP, targets_M in zip(xs, targets, strict=True)]

    def _sampled(
        self, xs: list[Tensor], targets: list[Tensor], negatives: Negatives
    ) -> list[Tensor]:
        words_K = negatives.words_K
        # One gather for all words: a dense gradient of every gather passes over the whole matrix.
        words = torch.cat([words_K, *targets])
        sizes = [len(words_K), *map(len, targets)]
        weight_KP, *weights = read_rows(self.weight, words, self.row_gradients).split_with_sizes(
            sizes
        )
        corrected = self.bias[words] - negatives.log_counts(words, len(self.weight))
        bias_K, *biases = corrected.split_with_sizes(sizes)
        return [
            sampled_loss(x_MP, weight_KP, bias_K, weight_MP, bias_M, words_K == targets_M[:, None])
            for x_MP, targets_M, weight_MP, bias_M in zip(xs, targets, weights, biases, strict=True)
        ]

    def _exact(self, x_MP: Tensor, targets_M: Tensor) -> Tensor:
        """Return the exact loss, in chunks of predictions and words, so that memory is bounded."""
        total = x_MP.new_zeros((), dtype=widest(x_MP.device))
        for start in range(0, len(x_MP), ROWS):
            x_RP, targets_R = x_MP[start : start + ROWS], targets_M[start : start + ROWS]
            log_sum_R = torch.full(targets_R.shape, -math.inf, device=x_MP.device)
            for first in range(0, len(self.weight), WORDS):
                words = slice(first, first + WORDS)
                logits_RW = F.linear(x_RP, self.weight[words], self.bias[words]).float()
                log_sum_R = torch.logaddexp(log_sum_R, logits_RW.logsumexp(1))
            picked_R = (x_RP * self.weight[targets_R]).sum(1) + self.bias[targets_R]
            total += (log_sum_R - picked_R).sum(dtype=total.dtype)
        return total.float()
