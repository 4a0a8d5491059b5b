"""A linear layer that predicts faster on CPUs.

torch multiplies fp32 matrices with MKL, which uses half of the vector width on AMD's processors.
oneDNN, which torch also brings, uses all of it: 250 instead of 112 GFLOP/s per core of an EPYC with
AVX-512, with the same precision. Training is left as it is, since the operator has no gradient.
"""

import torch
from torch import Tensor, nn


class Linear(nn.Linear):
    """`nn.Linear` that calls oneDNN in inference mode on a CPU with AVX-512, in fp32."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x Wᵀ + b."""
        if not (torch.is_inference_mode_enabled() and uses_onednn(x)):
            return super().forward(x)
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return y


def uses_onednn(x: Tensor) -> bool:
    """Return True if oneDNN computes a product of `x`."""
    return (
        x.is_cpu
        and x.dtype == torch.float32
        and torch._C._has_mkldnn
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and not torch.is_autocast_enabled("cpu")
    )
