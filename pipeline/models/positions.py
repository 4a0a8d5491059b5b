"""Positions told by fixed waves: added to the embeddings, or turning queries and keys (rotary).

P positions, N pieces, H heads, D width, I = D / 2 frequencies
"""

import torch
from torch import Tensor

from pipeline.models.config import WAVES

Rotation = tuple[Tensor, Tensor]  # cosines and sines, [N, 1, 1, D] each


def _angles(positions: int, width: int) -> Tensor:
    """Angles [P, I]; wavelengths grow geometrically from 2π to 10,000 · 2π."""
    frequencies_I = WAVES ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.arange(positions, dtype=torch.float64)[:, None] * frequencies_I


def sinusoids(positions: int, width: int) -> Tensor:
    """Sines and cosines side by side, [P, D] (Vaswani et al., section 3.5)."""
    angles_PI = _angles(positions, width)
    return torch.stack([angles_PI.sin(), angles_PI.cos()], -1).flatten(1)[:, :width].float()


def rotation(positions: int, width: int) -> Tensor:
    """Cosines and sines for `rotate`, [P, 2, 1, 1, D] (Su et al.; halves as in ModernBERT)."""
    angles_PD = torch.cat([_angles(positions, width)] * 2, -1)
    return torch.stack([angles_PD.cos(), angles_PD.sin()], 1)[:, :, None, None].float()


def rotate(x_NGHD: Tensor, turn: Rotation) -> Tensor:
    """Turn each pair (i, i + D/2) by its position's angle, in each of G groups of heads."""
    cosines, sines = (part.to(x_NGHD.dtype) for part in turn)
    first, second = x_NGHD.chunk(2, dim=-1)
    return x_NGHD * cosines + torch.cat([-second, first], -1) * sines
