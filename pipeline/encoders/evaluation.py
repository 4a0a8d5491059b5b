"""Compute all inputs of a set without gradients, in batches of similar length."""

import math
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import torch

from pipeline.encoders.inputs import Ints
from pipeline.models.host_threads import side_by_side

R = TypeVar("R")
BATCH_UNITS = 2048  # units per batch; their states stay in the CPU's caches
LEAST_UNITS = 512  # units per batch below which a thread of its own does not pay


def for_each_batch(
    compute: Callable[[Ints], R], lengths: Ints, device: torch.device
) -> Iterator[R]:
    """Yield `compute(rows)` for all rows of inputs of these lengths, batch by batch.

    On a CPU `compute` runs on several threads, so it must not change shared state.
    """
    threads = torch.get_num_threads() if device.type == "cpu" else 1
    threads = max(1, min(threads, int(lengths.sum()) // LEAST_UNITS))
    return side_by_side(compute, evaluation_order(lengths, threads), threads)


def evaluation_order(lengths: Ints, threads: int = 1) -> list[Ints]:
    """Return all rows, longest first, in batches of about equal size, BATCH_UNITS at most.

    The number of batches is a multiple of `threads`, so that none of them waits at the end.
    """
    order = np.argsort(-lengths, kind="stable")
    if not len(order):
        return []
    units = np.cumsum(lengths[order])
    whole = max(1, int(units[-1]))
    batches = math.ceil(whole / BATCH_UNITS / threads) * threads
    number = (units - 1) * batches // whole
    return np.split(order, np.flatnonzero(np.diff(number)) + 1)
