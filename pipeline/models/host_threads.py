"""Threads of the host: several batches at a time on a CPU, or one batch ahead of its reader.

torch divides every operation among the cores, and all wait for the last one at its end. The
operations of small networks are so short that cores wait for a seventh of the time (bert_mini on
two cores). Whole batches side by side need no such waits.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")


def side_by_side(compute: Callable[[T], R], items: Sequence[T], threads: int) -> Iterator[R]:
    """Yield `compute` of every item, in order and in inference mode, `threads` at a time.

    With several threads `compute` must not change shared state. At most two results per thread wait
    to be read.
    """

    def compute_one(item: T) -> R:
        with torch.inference_mode():
            return compute(item)

    if threads == 1:
        yield from map(compute_one, items)
        return
    cores = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(
            threads, initializer=torch.set_num_threads, initargs=(max(1, cores // threads),)
        ) as pool:
            yield from _in_order(pool, compute_one, items, 2 * threads)
    finally:
        torch.set_num_threads(cores)  # the number also holds for threads that start later


def one_ahead(compute: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield `compute` of every item, in order, in a thread that is one item ahead.

    So an item is computed while the caller makes the next one and reads the last result.
    """
    with ThreadPoolExecutor(1) as pool:
        yield from _in_order(pool, compute, items, 1)


def _in_order(
    pool: ThreadPoolExecutor, compute: Callable[[T], R], items: Iterable[T], most: int
) -> Iterator[R]:
    """Yield the results of a pool in the order of `items`; at most `most` wait to be read."""
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(compute, item))
            if len(waiting) > most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
