"""AdamW for fine-tuning: learning rates with warm-up, linear decay and layer-wise decay."""

import math
from collections import defaultdict
from collections.abc import Sequence

from torch import Tensor, nn
from torch.optim import AdamW

from pipeline.encoders import Encoder
from pipeline.tasks.config import FinetuneConfig
from pipeline.tasks.lazy_rows import LazyEmbedding


class Optimizer:
    """AdamW over the trained parameters of an encoder and its head; biases and norms do not decay.

    A layer's learning rate is finetune.layer_decay times the rate of the layer above it; the last
    layer has finetune.lr (Sun et al. 2019, equation 5), the head finetune.head_lr. Parameters with
    equal settings form one group, because a step costs one kernel call per group. `tables`: lazy
    embedding tables, which this class steps with the rate of their layer. `total`: all steps.
    """

    def __init__(
        self,
        encoder: Encoder,
        head: nn.Module,
        config: FinetuneConfig,
        total: int,
        tables: Sequence[LazyEmbedding] = (),
    ) -> None:
        self._config, self._total = config, total
        self._tables = {id(table.weight): table for table in tables}
        self.peaks: dict[int, float] = {}  # peak learning rate by id of the parameter
        self.decays: dict[int, float] = {}  # weight decay by id of the parameter
        groups: dict[tuple[float, float], list[nn.Parameter]] = defaultdict(list)
        blocks = [*encoder.blocks(), list(head.parameters())]
        for below, block in enumerate(reversed(blocks)):
            peak = config.lr * config.layer_decay ** max(below - 1, 0)
            if below == 0 and config.head_lr is not None:
                peak = config.head_lr
            for value in block:
                if value.requires_grad:
                    decay = config.weight_decay if value.ndim > 1 else 0.0
                    self.peaks[id(value)], self.decays[id(value)] = peak, decay
                    if id(value) not in self._tables:
                        groups[peak, decay].append(value)
        self._values = [value for values in groups.values() for value in values]
        self._adamw = AdamW(
            [
                {"params": values, "peak": peak, "weight_decay": decay}
                for (peak, decay), values in groups.items()
            ],
            fused=True,
        )
        self.steps = 0
        self.rate = 0.0  # learning rate of the head in the last step

    def step(self) -> None:
        """Update all parameters from their gradients, clipped to finetune.clip; clear them."""
        read = [table.read_values() for table in self._tables.values()]
        excess = excess_norm([*self._values, *read], self._config.clip)
        # The attribute GradScaler sets: the fused kernel divides the gradients while reading them,
        # which saves a separate pass for clipping.
        self._adamw.grad_scale = excess  # type: ignore[attr-defined]
        config = self._config
        factor = learning_rate(self.steps, self._total, config.warmup, config.schedule)
        self.rate = config.lr * factor
        for group in self._adamw.param_groups:
            group["lr"] = group["peak"] * factor
        self._adamw.step()
        for key, table in self._tables.items():
            table.step(self.peaks[key] * factor, self.decays[key], excess)
        self._adamw.zero_grad(set_to_none=True)
        self.steps += 1


def excess_norm(values: Sequence[Tensor], largest: float) -> Tensor | None:
    """Return the divisor that clips the gradients to norm `largest`: 1 if they are small enough.

    None if `largest` is 0 (no clipping).
    """
    if not largest:
        return None
    norm = nn.utils.get_total_norm([each.grad for each in values if each.grad is not None])
    return ((norm + 1e-6) / largest).clamp(min=1.0)


def learning_rate(step: int, total: int, warmup: float, schedule: str = "linear") -> float:
    """Return the learning rate factor of `step`: linear warm-up, then decay to zero.

    `warmup`: the fraction of `total` steps that warm up. `schedule`: linear or cosine.
    """
    rising = math.ceil(total * warmup)
    if step < rising:
        return (step + 1) / rising
    rest = (total - step) / max(total - rising, 1)
    return (1 - math.cos(math.pi * rest)) / 2 if schedule == "cosine" else rest
