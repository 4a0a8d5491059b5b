"""Position encodings without parameters: sinusoids, added to embeddings, and rotary positions.

P positions, N tokens, G groups of heads, H heads, D width, I = D / 2 frequencies
"""

import torch
from torch import Tensor

from pipeline.models.config import THETA

CosSin = tuple[Tensor, Tensor]  # cosines and sines, [N, 1, 1, D] each


def _angles(positions: int, width: int, base: float = THETA) -> Tensor:
    """Return angles [P, I]; wavelengths grow geometrically from 2π to base · 2π."""
    frequencies_I = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.arange(positions, dtype=torch.float64)[:, None] * frequencies_I


def sinusoids(positions: int, width: int) -> Tensor:
    """Return alternating sines and cosines, [P, D] (Vaswani et al., section 3.5)."""
    angles_PI = _angles(positions, width)
    return torch.stack([angles_PI.sin(), angles_PI.cos()], -1).flatten(1)[:, :width].float()


def rotary_table(positions: int, width: int, base: float = THETA) -> Tensor:
    """Return cosines and sines for `apply_rotary`, [P, 2, 1, 1, D] (Su et al.; halves as in
    ModernBERT)."""
    angles_PD = torch.cat([_angles(positions, width, base)] * 2, -1)
    return torch.stack([angles_PD.cos(), angles_PD.sin()], 1)[:, :, None, None].float()


def apply_rotary(x_NGHD: Tensor, cos_sin: CosSin) -> Tensor:
    """Rotate each pair (i, i + D/2) by the angle of its position.

    G is 2 for queries and keys together.
    """
    cosines, sines = (part.to(x_NGHD.dtype) for part in cos_sin)
    first, second = x_NGHD.chunk(2, dim=-1)
    return x_NGHD * cosines + torch.cat([-second, first], -1) * sines
