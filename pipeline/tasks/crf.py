"""A linear-chain conditional random field over the tags of each sentence (Lafferty et al. 2001).

The score of a tag sequence is the sum of its words' logits and of learned scores: one per
transition between two tags, one for the first tag, one for the last. I-X follows only B-X and I-X;
it may begin an input, since a long sentence is cut into several. All sentences of a batch are
computed in parallel, one word position at a time.

W words of a batch, B sentences, T words of the longest sentence, C tags
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Ints = NDArray[np.int64]
IMPOSSIBLE = -1e4  # score of a transition that cannot be; finite, so that gradients are


class Crf(nn.Module):
    """Learned transition scores on top of a head's logits."""

    impossible: Tensor  # [C, C] scores to add: 0, or IMPOSSIBLE

    def __init__(self, tags: int, labels: Sequence[str] = ()) -> None:
        """labels: names of the tags; without them every transition is possible."""
        super().__init__()
        self.learned = nn.Parameter(torch.zeros(tags, tags))  # from tag (row) to tag (column)
        self.begins = nn.Parameter(torch.zeros(tags))
        self.ends = nn.Parameter(torch.zeros(tags))
        names = list(labels) or [""] * tags
        scores = [0.0 if may_follow(tag, last) else IMPOSSIBLE for last in names for tag in names]
        table = torch.tensor(scores).reshape(tags, tags)
        self.register_buffer("impossible", table, persistent=False)

    @property
    def follows(self) -> Tensor:
        """The score of each transition from a tag (row) to a tag (column)."""
        return self.learned + self.impossible

    def loss(self, logits_WC: Tensor, gold_W: Tensor, lengths: Ints) -> Tensor:
        """Return the negative log-likelihood of all sentences' gold tags. `lengths`: [B] words."""
        logits_BTC, real_BT = to_padded(logits_WC, lengths)
        gold_BT, _ = to_padded(gold_W, lengths)
        forward_BTC = self._sums(logits_BTC, real_BT)
        total_B = (_last(forward_BTC, real_BT) + self.ends).logsumexp(1)
        steps_BT = self.follows[gold_BT[:, :-1], gold_BT[:, 1:]] * real_BT[:, 1:]
        gold_B = (
            logits_BTC.gather(2, gold_BT[:, :, None])[:, :, 0].mul(real_BT).sum(1)
            + steps_BT.sum(1)
            + self.begins[gold_BT[:, 0]]
            + self.ends[_last(gold_BT, real_BT)]
        )
        return (total_B - gold_B).sum()

    def decide(self, logits_WC: Tensor, lengths: Ints) -> Tensor:
        """Return marginal log-probabilities of the tags, and the best path as the last column.

        [W, C + 1]. The tag of the best path is not always the one with the largest marginal.
        """
        logits_BTC, real_BT = to_padded(logits_WC, lengths)
        marginals_WC = self._marginals(logits_BTC, real_BT)[real_BT]
        path_W1 = self._best(logits_BTC, real_BT)[real_BT][:, None]
        return torch.cat([marginals_WC, path_W1.to(marginals_WC.dtype)], 1)

    def _sums(self, logits_BTC: Tensor, real_BT: Tensor) -> Tensor:
        """Return forward scores [B, T, C]: the log-sum over all paths ending in each tag."""
        sums_BC = self.begins + logits_BTC[:, 0]
        all_sums = [sums_BC]
        for word in range(1, logits_BTC.shape[1]):
            stepped_BC = (sums_BC[:, :, None] + self.follows).logsumexp(1) + logits_BTC[:, word]
            sums_BC = torch.where(real_BT[:, word, None], stepped_BC, sums_BC)
            all_sums.append(sums_BC)
        return torch.stack(all_sums, 1)

    def _marginals(self, logits_BTC: Tensor, real_BT: Tensor) -> Tensor:
        """Return marginal log-probabilities [B, T, C] of each word's tags."""
        forward_BTC = self._sums(logits_BTC, real_BT)
        after_BC = self.ends.expand_as(forward_BTC[:, 0])  # backward scores
        rest = [after_BC]
        for word in range(logits_BTC.shape[1] - 1, 0, -1):
            stepped_BC = (self.follows + (logits_BTC[:, word] + after_BC)[:, None]).logsumexp(2)
            after_BC = torch.where(real_BT[:, word, None], stepped_BC, after_BC)
            rest.append(after_BC)
        return (forward_BTC + torch.stack(rest[::-1], 1)).log_softmax(2)

    def _best(self, logits_BTC: Tensor, real_BT: Tensor) -> Tensor:
        """Return the best path [B, T] (Viterbi); padding repeats the sentence's last tag."""
        best_BC = self.begins + logits_BTC[:, 0]
        stay_BC = torch.arange(best_BC.shape[1], device=best_BC.device).expand_as(best_BC)
        came_from = []
        for word in range(1, logits_BTC.shape[1]):
            stepped_BC, from_BC = (best_BC[:, :, None] + self.follows).max(1)
            real_B1 = real_BT[:, word, None]
            best_BC = torch.where(real_B1, stepped_BC + logits_BTC[:, word], best_BC)
            came_from.append(torch.where(real_B1, from_BC, stay_BC))
        tag_B1 = (best_BC + self.ends).argmax(1, keepdim=True)
        path = [tag_B1]
        for from_BC in reversed(came_from):
            tag_B1 = from_BC.gather(1, tag_B1)
            path.append(tag_B1)
        return torch.cat(path[::-1], 1)


def may_follow(tag: str, last: str) -> bool:
    """Return True if a BIO tag may follow another; any other tag may stand anywhere."""
    mark, _, kind = tag.partition("-")
    return mark != "I" or not kind or last in (f"B-{kind}", f"I-{kind}")


def to_padded(x: Tensor, lengths: Ints) -> tuple[Tensor, Tensor]:
    """Pad flat rows [W, ...] with zeros to [B, T, ...]; also return the mask of real rows [B, T].

    `padded[mask]` restores the flat rows.
    """
    real_BT = torch.from_numpy(np.arange(lengths.max()) < lengths[:, None]).to(x.device)
    padded = x.new_zeros(*real_BT.shape, *x.shape[1:])
    padded[real_BT] = x
    return padded, real_BT


def _last(x_BT: Tensor, real_BT: Tensor) -> Tensor:
    """Return the last real element of each sentence."""
    return x_BT[torch.arange(len(x_BT), device=x_BT.device), real_BT.sum(1) - 1]
