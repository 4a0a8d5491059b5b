"""AdamW for fine-tuning: learning rates that warm up, fall, and may be lower for lower layers."""

import math
from collections import defaultdict

from torch import nn
from torch.optim import AdamW

from pipeline.encoders import Encoder
from pipeline.tasks.config import FinetuneConfig


def make_optimizer(encoder: Encoder, head: nn.Module, config: FinetuneConfig) -> AdamW:
    """The optimizer of what is trained; biases and norms do not decay.

    A layer's learning rate is finetune.layer_decay times that of the layer above it; the last layer
    and the head have finetune.lr (Sun et al. 2019, equation 5). Equal ones form one group: a step
    costs a call for each.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = defaultdict(list)
    blocks = [*encoder.blocks(), list(head.parameters())]
    for below, block in enumerate(reversed(blocks)):
        rate = config.lr * config.layer_decay ** max(below - 1, 0)
        for value in block:
            if value.requires_grad:
                groups[rate, config.weight_decay if value.ndim > 1 else 0.0].append(value)
    return AdamW(
        [
            {"params": values, "lr": rate, "weight_decay": decay}
            for (rate, decay), values in groups.items()
        ],
        fused=True,
    )


def learning_rate(step: int, total: int, warmup: float) -> float:
    """The factor before `step`: up in a line over the share `warmup`, then down to zero."""
    rising = math.ceil(total * warmup)
    if step < rising:
        return (step + 1) / rising
    return (total - step) / max(total - rising, 1)
