"""AdamW for fine-tuning: learning rates with warm-up, linear decay and layer-wise decay."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from torch import Tensor, nn
from torch.optim import AdamW

from pipeline.encoders import Encoder
from pipeline.tasks.config import FinetuneConfig
from pipeline.tasks.lazy_rows import LazyEmbedding


@dataclass(frozen=True)
class Group:
    """Parameters with the same settings."""

    peak: float  # learning rate at the end of the warm-up
    decay: float  # weight decay
    values: list[nn.Parameter]


def parameter_groups(encoder: Encoder, head: nn.Module, config: FinetuneConfig) -> list[Group]:
    """Return the trained parameters in groups of equal settings; biases and norms do not decay.

    A layer's learning rate is finetune.layer_decay times the rate of the layer above it; the last
    layer has finetune.lr (Sun et al. 2019, equation 5), the head finetune.head_lr. Few groups are
    wanted, because a step costs one kernel call per group.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = defaultdict(list)
    blocks = [*encoder.blocks(), list(head.parameters())]
    for below, block in enumerate(reversed(blocks)):
        peak = config.lr * config.layer_decay ** max(below - 1, 0)
        if below == 0 and config.head_lr is not None:
            peak = config.head_lr
        for value in block:
            if value.requires_grad:
                groups[peak, config.weight_decay if value.ndim > 1 else 0.0].append(value)
    return [Group(peak, decay, values) for (peak, decay), values in groups.items()]


def shown_peak(config: FinetuneConfig) -> float:
    """Return the peak rate written to the journal: the encoder's; if that is 0, the head's."""
    return config.lr or config.head_lr or 0.0


class Optimizer:
    """AdamW over the trained parameters of encoder and head, for the loop in one process.

    `tables`: lazy embedding tables, which this class steps with the rate of their
    layer. `total`: all steps.
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
        self._peaks: dict[int, tuple[float, float]] = {}  # of tables: peak and decay by id
        groups = []
        for group in parameter_groups(encoder, head, config):
            usual = [value for value in group.values if id(value) not in self._tables]
            for value in group.values:
                self._peaks[id(value)] = group.peak, group.decay
            if usual:
                groups.append({"params": usual, "peak": group.peak, "weight_decay": group.decay})
        self._values = [value for group in groups for value in cast(list[Tensor], group["params"])]
        self._adamw = AdamW(groups, fused=True)

    def step(self, step: int) -> float:
        """Update all parameters from their gradients, clipped to finetune.clip; clear them.

        `step` is the number of steps before this one. Returns the norm of the gradients before
        clipping. If it is not finite, no weight changes.
        """
        read = [table.read_values() for table in self._tables.values()]
        gradients = [each.grad for each in (*self._values, *read) if each.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        if is_finite := math.isfinite(norm.item()):
            config = self._config
            excess = ((norm + 1e-6) / config.clip).clamp(min=1.0) if config.clip else None
            # The attribute GradScaler sets: the fused kernel divides the gradients while reading
            # them, which saves a separate pass for clipping.
            self._adamw.grad_scale = excess  # type: ignore[attr-defined]
            factor = learning_rate(step, self._total, config.warmup, config.schedule)
            for group in self._adamw.param_groups:
                group["lr"] = group["peak"] * factor
            self._adamw.step()
            for key, table in self._tables.items():
                peak, decay = self._peaks[key]
                table.step(peak * factor, decay, excess)
        self._adamw.zero_grad(set_to_none=True)
        return norm.item() if is_finite else math.inf

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, for the journal: see `shown_peak`."""
        config = self._config
        factor = learning_rate(step, self._total, config.warmup, config.schedule)
        return shown_peak(config) * factor

    def moments(self, value: nn.Parameter) -> dict[str, Tensor]:
        """Return all that the optimizer keeps of a parameter; empty before its first update."""
        if id(value) in self._tables:
            return self._tables[id(value)].moments()
        return cast(dict[str, Tensor], self._adamw.state.get(value, {}))

    def restore(self, value: nn.Parameter, moments: dict[str, Tensor]) -> None:
        """Load what `moments` returned."""
        if id(value) in self._tables:
            self._tables[id(value)].restore(moments)
        elif moments:
            self._adamw.state[value] = {
                key: moment.to(value.device) for key, moment in moments.items()
            }


def learning_rate(step: int, total: int, warmup: float, schedule: str = "linear") -> float:
    """Return the learning rate factor of `step`: linear warm-up, then decay to zero.

    `warmup`: the fraction of `total` steps that warm up. `schedule`: linear or cosine.
    """
    rising = math.ceil(total * warmup)
    if step < rising:
        return (step + 1) / rising
    rest = (total - step) / max(total - rising, 1)
    return (1 - math.cos(math.pi * rest)) / 2 if schedule == "cosine" else rest
