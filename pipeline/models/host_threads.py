"""Compute several batches at a time on a CPU, each on its share of the cores.

torch divides every operation among the cores, and all wait for the last one at its end. The
operations of small networks are so short that cores wait for a seventh of the time (bert_mini on
two cores). Whole batches side by side need no such waits.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
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
    waiting: deque[Future[R]] = deque()
    try:
        with ThreadPoolExecutor(
            threads, initializer=torch.set_num_threads, initargs=(max(1, cores // threads),)
        ) as pool:
            for item in items:
                waiting.append(pool.submit(compute_one, item))
                if len(waiting) > 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
    finally:
        torch.set_num_threads(cores)  # the number also holds for threads that start later
