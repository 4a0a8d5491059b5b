"""The masked-LM loss: cross-entropy over the vocabulary, where most of a small model's work is.

M predictions, D hidden width, V vocabulary, C predictions of a chunk
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK = 512  # predictions whose logits are held at once
STRIP = 16  # of these, how many softmax works on at once: they stay in a core's cache (2 MB)
ALIGN = 16  # logits' rows start at multiples of 64 bytes: a third faster than at odd places


def masked_loss(
    x_MD: Tensor, weight_VD: Tensor, bias_V: Tensor, labels_M: Tensor
) -> tuple[Tensor, Tensor]:
    """Summed cross-entropy of logits x W^T + b, and how many labels have the highest logit."""
    mixed = torch.is_autocast_enabled(x_MD.device.type) or x_MD.dtype != weight_VD.dtype
    if x_MD.is_cpu and not mixed and not torch.compiler.is_compiling():
        training = torch.is_grad_enabled()
        result: tuple[Tensor, Tensor] = _HostLoss.apply(  # type: ignore[no-untyped-call]
            x_MD, weight_VD, bias_V, labels_M, training
        )
        return result
    logits_MV = F.linear(x_MD, weight_VD, bias_V).float()
    correct = (logits_MV.detach().argmax(1) == labels_M).sum()
    return F.cross_entropy(logits_MV, labels_M, reduction="sum"), correct


class _HostLoss(torch.autograd.Function):
    """Loss and, in the same pass, its gradients, so that logits never outlive a chunk.

    Loss = Σ log Z - logit of the label, with Z = Σ_V exp(logit); d logits = exp(logit) / Z, minus
    one at the label. The division by Z is left to the small factors of the matrix products.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x_MD: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor,
        labels_M: Tensor,
        training: bool,
    ) -> tuple[Tensor, Tensor]:
        size = len(weight_VD)
        stride = -(-size // ALIGN) * ALIGN
        room = x_MD.new_empty(min(CHUNK, len(x_MD)), stride)
        if training:
            d_x_MD = torch.empty_like(x_MD)
            d_weight_VD, d_bias_V = torch.zeros_like(weight_VD), torch.zeros_like(bias_V)
            ctx.save_for_backward(d_x_MD, d_weight_VD, d_bias_V)
        loss, correct = x_MD.new_zeros(()), labels_M.new_zeros(())
        for start in range(0, len(x_MD), CHUNK):
            x_CD, labels_C1 = x_MD[start : start + CHUNK], labels_M[start : start + CHUNK, None]
            logits_CV = room[: len(x_CD), :size]
            torch.addmm(bias_V, x_CD, weight_VD.t(), out=logits_CV)
            picked_C1 = logits_CV.gather(1, labels_C1)
            highest_C1, total_C1 = _exponentiate(logits_CV)
            loss += (total_C1.log() + highest_C1 - picked_C1).sum()
            correct += (picked_C1 == highest_C1).sum()
            if training:
                logits_CV.scatter_add_(1, labels_C1, -total_C1)
                shares_C1 = total_C1.reciprocal()
                torch.mm(logits_CV, weight_VD, out=d_x_MD[start : start + CHUNK])
                d_x_MD[start : start + CHUNK] *= shares_C1
                d_weight_VD.addmm_(logits_CV.t(), x_CD * shares_C1)
                d_bias_V.addmv_(logits_CV.t(), shares_C1[:, 0])
        ctx.mark_non_differentiable(correct)
        return loss, correct

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        d_x_MD, d_weight_VD, d_bias_V = ctx.saved_tensors
        return d_x_MD * d_loss, d_weight_VD * d_loss, d_bias_V * d_loss, None, None


def _exponentiate(logits_CV: Tensor) -> tuple[Tensor, Tensor]:
    """Replace logits by exp(logit - highest), strip by strip; the highest and the sum of each."""
    highest, total = [], []
    for start in range(0, len(logits_CV), STRIP):
        strip = logits_CV[start : start + STRIP]
        highest.append(strip.amax(1, keepdim=True))
        total.append(strip.sub_(highest[-1]).exp_().sum(1, keepdim=True))
    return torch.cat(highest), torch.cat(total)
