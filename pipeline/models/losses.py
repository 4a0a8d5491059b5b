"""Cross-entropy over the vocabulary or a sample of it. It dominates the cost of a small model.

M predictions, D hidden width, V vocabulary, K sampled words, C predictions of a chunk
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK = 512  # predictions whose logits are held at once
STRIP = 16  # predictions per softmax call: their logits fit a core's cache (2 MB)
ALIGN = 16  # floats: rows of logits aligned to 64 bytes are a third faster


def masked_loss(
    x_MD: Tensor, weight_VD: Tensor, bias_V: Tensor, labels_M: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the summed cross-entropy of logits x W^T + b, and the number of correct predictions
    (labels with the highest logit)."""
    if _on_host(x_MD, weight_VD):
        training = torch.is_grad_enabled()
        result: tuple[Tensor, Tensor] = _HostLoss.apply(  # type: ignore[no-untyped-call]
            x_MD, weight_VD, bias_V, labels_M, training
        )
        return result
    logits_MV = F.linear(x_MD, weight_VD, bias_V).float()
    correct = (logits_MV.detach().argmax(1) == labels_M).sum()
    return F.cross_entropy(logits_MV, labels_M, reduction="sum"), correct


def sampled_loss(
    x_MD: Tensor,
    weight_KD: Tensor,
    bias_K: Tensor,
    true_weight_MD: Tensor,
    true_bias_M: Tensor,
    hits_MK: Tensor,
) -> Tensor:
    """Return the summed cross-entropy of each target word against K sampled words.

    `hits_MK` marks sampled words that equal the target; they are left out.
    """
    if _on_host(x_MD, weight_KD):
        loss: Tensor = _HostSampledLoss.apply(  # type: ignore[no-untyped-call]
            x_MD, weight_KD, bias_K, true_weight_MD, true_bias_M, hits_MK
        )
        return loss
    true_M1 = (torch.einsum("md,md->m", x_MD, true_weight_MD) + true_bias_M)[:, None]
    logits_MK = F.linear(x_MD, weight_KD, bias_K).masked_fill(hits_MK, -torch.inf)
    logits = torch.cat([true_M1, logits_MK], 1).float()
    return (logits.logsumexp(1) - logits[:, 0]).sum()


def _on_host(x_MD: Tensor, weight: Tensor) -> bool:
    mixed = torch.is_autocast_enabled(x_MD.device.type) or x_MD.dtype != weight.dtype
    return x_MD.is_cpu and not mixed and not torch.compiler.is_compiling()


class _HostLoss(torch.autograd.Function):
    """Computes the loss and its gradients in one forward pass, so that logits are held for one
    chunk only.

    Loss = Σ log Z - logit of the label, with Z = Σ_V exp(logit); d logits = exp(logit) / Z, minus
    one at the label. The division by Z is applied to the small factors [C, D] of the matrix
    products instead of the logits [C, V].
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
        # In place: another gradient [V, D] would cost as much memory traffic as the update.
        return (*(part.mul_(d_loss) for part in ctx.saved_tensors), None, None)


class _HostSampledLoss(torch.autograd.Function):
    """`_HostLoss` for sampled words; Z also includes the target word, which is not among the K."""

    @staticmethod
    def forward(
        ctx: Any,
        x_MD: Tensor,
        weight_KD: Tensor,
        bias_K: Tensor,
        true_weight_MD: Tensor,
        true_bias_M: Tensor,
        hits_MK: Tensor,
    ) -> Tensor:
        room = x_MD.new_empty(min(CHUNK, len(x_MD)), len(weight_KD))
        d_x_MD, d_true_bias_M = torch.empty_like(x_MD), torch.empty_like(true_bias_M)
        d_weight_KD, d_bias_K = torch.zeros_like(weight_KD), torch.zeros_like(bias_K)
        true_M = torch.einsum("md,md->m", x_MD, true_weight_MD) + true_bias_M
        loss = x_MD.new_zeros(())
        for start in range(0, len(x_MD), CHUNK):
            chunk = slice(start, start + CHUNK)
            x_CD, true_C1 = x_MD[chunk], true_M[chunk, None]
            logits_CK = torch.addmm(bias_K, x_CD, weight_KD.t(), out=room[: len(x_CD)])
            logits_CK.masked_fill_(hits_MK[chunk], -torch.inf)
            highest_C1, total_C1 = _exponentiate(logits_CK)
            log_z_C1 = torch.logaddexp(highest_C1 + total_C1.log(), true_C1)
            loss += (log_z_C1 - true_C1).sum()
            shares_C1 = (highest_C1 - log_z_C1).exp()
            torch.mm(logits_CK, weight_KD, out=d_x_MD[chunk])
            d_x_MD[chunk] *= shares_C1
            d_weight_KD.addmm_(logits_CK.t(), x_CD * shares_C1)
            d_bias_K.addmv_(logits_CK.t(), shares_C1[:, 0])
            d_true_bias_M[chunk] = (true_C1 - log_z_C1).exp().sub_(1)[:, 0]
        d_x_MD.addcmul_(true_weight_MD, d_true_bias_M[:, None])
        d_true_weight_MD = x_MD * d_true_bias_M[:, None]
        ctx.save_for_backward(d_x_MD, d_weight_KD, d_bias_K, d_true_weight_MD, d_true_bias_M)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_loss: Tensor) -> tuple[Tensor | None, ...]:
        return (*(part * d_loss for part in ctx.saved_tensors), None)


def _exponentiate(logits_CV: Tensor) -> tuple[Tensor, Tensor]:
    """Replace logits by exp(logit - highest) in place; return the highest logit and the sum of the
    exponentials per row, [C, 1] each."""
    highest, total = [], []
    for start in range(0, len(logits_CV), STRIP):
        strip = logits_CV[start : start + STRIP]
        highest.append(strip.amax(1, keepdim=True))
        total.append(strip.sub_(highest[-1]).exp_().sum(1, keepdim=True))
    return torch.cat(highest), torch.cat(total)
