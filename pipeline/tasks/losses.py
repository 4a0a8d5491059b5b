"""The loss of each kind of task, as a sum and the weight to divide it by.

So a batch in parts has the loss of the whole: all sums divided by all weights. `heads` defines the
shapes of answers and gold.

R rows, K columns, C classes
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.encoders import InputBatch
from pipeline.encoders.pooling import reduce_runs


def summed(
    kind: str, answers: Tensor, gold: Tensor, batch: InputBatch, weights_C: Tensor | None
) -> Tensor:
    """Return the sum of the losses of a batch. `weights_C`: of the classes, for cross-entropy."""
    match kind:
        case "regress":
            return F.mse_loss(answers[:, 0], gold, reduction="sum")
        case "multilabel":
            return F.binary_cross_entropy_with_logits(answers, gold, reduction="sum")
        case "span":
            lengths_E = torch.from_numpy(batch.lengths).to(answers.device)
            return cross_entropy_of_runs(answers, gold, lengths_E)
        case "choice":
            choices = torch.bincount(gold[:, 0].long().cumsum(0))[1:]  # per example
            return cross_entropy_of_runs(answers, gold[:, 1:], choices)
        case _:
            return F.cross_entropy(answers, gold, weights_C, reduction="sum")


def weight(kind: str, gold: Tensor, batch: InputBatch, weights_C: Tensor | None) -> float:
    """Return the number of answers in the sum, or their total weight."""
    match kind:
        case "span":  # starts and ends
            return 2 * len(batch.lengths)
        case "choice":
            return float(gold[:, 0].sum())
        case _ if weights_C is not None:
            return float(weights_C[gold.to(weights_C.device)].sum())
        case _:
            return gold.numel()


def cross_entropy_of_runs(logits_RK: Tensor, gold_RK: Tensor, lengths: Tensor) -> Tensor:
    """Return the cross-entropy over the rows of each run, summed over runs and columns.

    gold_RK is 1 at one row of each run and column. Used for spans, where a run is the units of an
    input (Devlin et al. 2019, section 4.2), and for the choices of an example.
    """
    most = reduce_runs(logits_RK.detach(), lengths, "max")
    shifted_RK = logits_RK - most.repeat_interleave(lengths, 0)
    sums = reduce_runs(shifted_RK.exp(), lengths, "sum")
    return sums.log().sum() - (shifted_RK * gold_RK).sum()
