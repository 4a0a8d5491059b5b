"""Running sums of losses, correct predictions and their counts, by name.

Sums can be added over micro-batches, ranks and steps of any size; means cannot. Means are computed
only when reported. The names belong to the family: see its objective. Every objective counts
`tokens`. Without torch.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Sums:
    """Named sums over some rows. A name that was never added is zero."""

    by_name: Mapping[str, float] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float:
        return self.by_name.get(name, 0.0)

    def __add__(self, other: "Sums") -> "Sums":
        names = dict.fromkeys([*self.by_name, *other.by_name])
        return Sums({name: self[name] + other[name] for name in names})

    def mean(self, total: str, count: str) -> float | None:
        """Return one sum divided by another; None if the latter is zero."""
        return self[total] / self[count] if self[count] else None

    @property
    def tokens(self) -> float:
        return self["tokens"]


def perplexity(loss: float) -> float:
    """Return exp(loss) for a loss in nats, without overflow; a loss that is not finite is returned
    unchanged."""
    return math.exp(min(loss, 700.0)) if math.isfinite(loss) else loss
