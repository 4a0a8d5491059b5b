"""Batches side by side on a CPU: order, errors, threads and memory."""

import threading
from collections.abc import Iterator

import pytest
import torch

from pipeline.models.host_threads import one_ahead, side_by_side


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    given = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(given)


def test_results_come_in_order_and_items_are_computed_at_the_same_time() -> None:
    together = threading.Barrier(2, timeout=30)  # breaks if items are computed one by one

    def compute(item: int) -> tuple[int, int, bool]:
        together.wait()
        return item, torch.get_num_threads(), torch.is_inference_mode_enabled()

    assert list(side_by_side(compute, range(10), 2)) == [(n, 1, True) for n in range(10)]
    assert torch.get_num_threads() == 2 and not torch.is_inference_mode_enabled()


def test_one_thread_is_the_caller_s_with_all_cores() -> None:
    def compute(item: int) -> tuple[int, threading.Thread]:
        return torch.get_num_threads(), threading.current_thread()

    assert list(side_by_side(compute, [1, 2, 3], 1)) == [(2, threading.current_thread())] * 3
    assert list(side_by_side(compute, [], 2)) == []


def test_an_error_is_raised_where_its_result_would_come() -> None:
    results = side_by_side(lambda item: 1 // item, [1, 1, 0, 1], 2)
    assert [next(results), next(results)] == [1, 1]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert torch.get_num_threads() == 2


def test_few_results_wait_for_a_slow_reader() -> None:
    computed = []
    results = side_by_side(computed.append, range(1000), 2)
    next(results)
    assert len(computed) <= 6
    results.close()
    assert len(computed) <= 6 and torch.get_num_threads() == 2


def test_the_next_item_is_made_while_one_is_computed() -> None:
    is_made = [threading.Event() for _ in range(4)]

    def items() -> Iterator[int]:
        for number, event in enumerate(is_made):
            event.set()
            yield number

    def compute(number: int) -> int:
        if number + 1 < len(is_made):
            assert is_made[number + 1].wait(timeout=30)
        return number

    assert list(one_ahead(compute, items())) == [0, 1, 2, 3]


def test_one_item_at_most_is_computed_ahead() -> None:
    computed: list[int] = []
    results = one_ahead(computed.append, iter(range(1000)))
    next(results)
    results.close()
    assert len(computed) <= 2
    errors = one_ahead(lambda item: 1 // item, [1, 0, 1])
    assert next(errors) == 1
    with pytest.raises(ZeroDivisionError):
        next(errors)
