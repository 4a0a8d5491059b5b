"""No damaged file of another person makes a traceback, a crash, a hang or a gigabyte.

The first inputs of every reader, which are always the same; `make soak` reads 10,000 of each.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fuzz import worker
from tests.fuzz.readers import READERS
from tests.fuzz.worker import fuzz

INPUTS = 40
SLOW = {"recipes": 8}  # Hydra takes a tenth of a second to compose a config


@pytest.mark.parametrize("reader", READERS)
def test_a_damaged_file_is_read_or_refused_in_a_sentence(reader: str) -> None:
    count = SLOW.get(reader, INPUTS)
    result = fuzz(READERS[reader], 0, count)
    assert result.tried == count
    assert not result.faults, {kind: result.first[kind] for kind in result.faults}


def fail_with_a_traceback(folder: Path) -> None:
    raise KeyError("no SesameError")


def crash(folder: Path) -> None:
    os.abort()


def hang(folder: Path) -> None:
    while True:
        pass


def fill_the_memory(folder: Path) -> None:
    bytearray(2 << 30)


@pytest.mark.parametrize(
    ("read", "fault"),
    [
        (fail_with_a_traceback, "KeyError at ?: 'no SesameError'"),
        (crash, "killed by SIGABRT"),
        (hang, "more than 0.2 seconds"),
        (fill_the_memory, "MemoryError at ?: "),
    ],
)
def test_the_harness_finds_every_kind_of_fault(
    read: Callable[[Path], None], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "SECONDS", 0.2)
    result = fuzz(replace(READERS["GloVe"], read=read), 5, 3)
    assert result.faults == {fault: 3}
    assert result.first == {fault: 5}
