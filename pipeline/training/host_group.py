"""Exchanges small values of the host among all ranks, without the device."""

from typing import Any, cast

import torch
import torch.distributed as dist


class HostGroup:
    """All ranks of a run, connected by gloo. Every method is collective.

    Ranks must make the calls of one group in the same order. Threads therefore need a group each.
    """

    def __init__(self, ranks: int, group: dist.ProcessGroup | None) -> None:
        self._ranks = ranks
        self._group = group  # None: the default group, or no other rank

    @classmethod
    def make(cls, ranks: int) -> "HostGroup":
        """Return a new group, for the use of one thread. Collective."""
        return cls(ranks, dist.new_group(backend="gloo") if ranks > 1 else None)

    @classmethod
    def shared(cls, ranks: int) -> "HostGroup":
        """Return the default group if that is gloo, and a new group otherwise. Collective."""
        is_gloo = ranks > 1 and dist.get_backend() == "gloo"
        return cls(ranks, None) if is_gloo else cls.make(ranks)

    def sum(self, values: list[float]) -> list[float]:
        """Return each value summed over all ranks."""
        if self._ranks == 1:
            return values
        total = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(total, group=self._group)
        return cast(list[float], total.tolist())

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, indexed by rank."""
        if self._ranks == 1:
            return [value]
        values: list[Any] = [None] * self._ranks
        dist.all_gather_object(values, value, group=self._group)
        return values
