"""A task's files as training, development and test examples.

What has no file of its own is cut from the training file by hash, so that the cut depends neither
on the order of examples nor on any seed; only the sample of training labels follows
`finetune.seed`, and a smaller sample lies inside a larger one.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_prep.errors import SesameError, UsageError
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.conll import read_conll
from pipeline.tasks.examples import Example
from pipeline.tasks.table import read_table
from pipeline.tasks.wiki_links import read_wiki_links

READERS: dict[str, Callable[[Path, TaskConfig], Iterator[Example]]] = {
    "table": read_table,
    "conll": read_conll,
    "wiki_links": read_wiki_links,
}
TEST_SHARE = 0.2  # of the groups in the training file, where test has neither file nor documents
DEV_SHARE = 0.1  # of the groups that are left, where dev has no file
CUT_SEED = 0  # of the samples that are the same in every run: development and test


@dataclass(frozen=True)
class Splits:
    """A task's examples, ready to be encoded."""

    train: list[Example]
    dev: list[Example]
    test: list[Example]
    labels: list[str]  # classes or tags in the head's order; empty for regression
    repaired_tags: int  # in all files


def task_files(task: TaskConfig) -> list[tuple[str, Path]]:
    """The task's files, as (name below data_dir, path)."""
    if task.train is None:
        raise UsageError("task.train is not set: choose a task, for example task=polarity")
    if task.data_dir is None:
        raise UsageError(f"task.data_dir is not set: the folder that holds {task.train}")
    folder = Path(task.data_dir)
    names = [name for name in (task.train, task.dev, task.test) if name is not None]
    for name in names:
        if not (folder / name).is_file():
            raise UsageError(f"task.data_dir={folder}: there is no file {name} in it")
    return [(name, folder / name) for name in dict.fromkeys(names)]


def read_splits(task: TaskConfig, seed: int) -> Splits:
    """Read all files, cut what has none, take the samples that are asked for."""
    files = dict(task_files(task))
    read = READERS[task.reader]
    parts = {name: list(read(path, task)) for name, path in files.items()}
    assert task.train is not None
    train = parts[task.train]
    labels = _labels(task, train)
    for name, examples in parts.items():
        _check_labels(files[name], examples, task, labels)

    test, dev = parts.get(task.test or ""), parts.get(task.dev or "")
    if task.test_documents:
        wanted = set(task.test_documents)
        test, train = _part(train, lambda example: example.group in wanted)
    elif test is None and dev is None:
        test, train = _part(train, lambda example: _hash("test", example.group) < TEST_SHARE)
    if dev is None:
        dev, train = _part(train, lambda example: _hash("dev", example.group) < DEV_SHARE)
    if test is None:
        test = dev

    for name, examples in (("training", train), ("development", dev), ("test", test)):
        if not examples:
            raise SesameError(f"{files[task.train]}: too few examples; none is left for {name}")
    count = round(len(train) * task.train_fraction)
    count = min(count, task.train_examples or count)
    if not count:
        raise SesameError(
            f"task.train_fraction={task.train_fraction}: leaves none of {len(train)} examples"
        )
    return Splits(
        _sample(train, count, seed),
        _sample(dev, task.dev_examples, CUT_SEED),
        _sample(test, task.test_examples, CUT_SEED),
        labels,
        sum(example.repaired for examples in parts.values() for example in examples),
    )


def _labels(task: TaskConfig, train: Sequence[Example]) -> list[str]:
    if task.kind == "regress":
        return []
    if task.kind == "classify":
        return task.labels or sorted({str(example.gold) for example in train})
    kinds = task.labels or sorted(
        {tag[2:] for example in train for tag in _tags(example) if tag != "O"}
    )
    return ["O", *(f"{prefix}-{kind}" for kind in kinds for prefix in "BI")]


def _tags(example: Example) -> tuple[str, ...]:
    assert isinstance(example.gold, tuple)
    return example.gold


def _check_labels(
    path: Path, examples: Sequence[Example], task: TaskConfig, labels: Sequence[str]
) -> None:
    if task.kind == "regress":
        return
    known = set(labels)
    for example in examples:
        found = _tags(example) if task.kind == "tag" else (str(example.gold),)
        if not known.issuperset(found):
            source = "task.labels" if task.labels else f"the training file {task.train}"
            raise SesameError(
                f"{path}:{example.line}: a label that is not among the {len(labels)} of {source}"
            )


def _part(
    examples: Sequence[Example], chosen: Callable[[Example], bool]
) -> tuple[list[Example], list[Example]]:
    inside = [example for example in examples if chosen(example)]
    outside = [example for example in examples if not chosen(example)]
    return inside, outside


def _hash(purpose: str, group: str) -> float:
    digest = hashlib.blake2b(f"{purpose}\x1f{group}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _sample(examples: list[Example], count: int | None, seed: int) -> list[Example]:
    if count is None or count >= len(examples):
        return examples
    return [examples[i] for i in np.random.default_rng(seed).permutation(len(examples))[:count]]
