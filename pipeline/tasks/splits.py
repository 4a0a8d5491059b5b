"""Read a task's files as training, development and test examples.

A split without a file is taken from the training file by a hash of the example's group. It depends
neither on the order of examples nor on a seed. Only the sample of training examples depends on
`finetune.seed`; a smaller sample is a subset of a larger one.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from data_prep.errors import SesameError, UsageError
from pipeline.tasks.brat import brat_files, read_brat
from pipeline.tasks.commonsense_qa import read_commonsense_qa
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.conll import read_conll
from pipeline.tasks.conll2012 import conll2012_files, read_conll2012
from pipeline.tasks.conllu import read_conllu
from pipeline.tasks.examples import Example, TaskFile
from pipeline.tasks.groups import count_groups, refuse_shared_groups
from pipeline.tasks.squad import read_squad
from pipeline.tasks.table import read_table
from pipeline.tasks.text_spans import read_spans
from pipeline.tasks.wic import gold_file, read_wic
from pipeline.tasks.wiki_links import read_wiki_links

READERS: dict[str, Callable[[TaskFile, TaskConfig], Iterator[Example]]] = {
    "table": read_table,
    "conll": read_conll,
    "conllu": read_conllu,
    "conll2012": read_conll2012,
    "wiki_links": read_wiki_links,
    "squad": read_squad,
    "commonsense_qa": read_commonsense_qa,
    "wic": read_wic,
    "spans": read_spans,
    "brat": read_brat,
}
FOLDERS = {"brat": brat_files, "conll2012": conll2012_files}  # readers of folders: their files
LABELLED = ("classify", "tag", "multilabel")  # kinds whose answers come from a fixed set of labels
TEST_SHARE = 0.2  # share of the training file's groups, if neither test nor dev is given
DEV_SHARE = 0.1  # share of the remaining groups, if no dev file is given
CUT_SEED = 0  # seed of the development and test samples, which are the same in every run


@dataclass(frozen=True)
class Splits:
    """A task's examples by split."""

    train: list[Example]
    dev: list[Example]
    test: list[Example]
    labels: list[str]  # classes or tags in the head's order; empty for other kinds
    further_tests: dict[str, list[Example]] = field(
        default_factory=dict
    )  # further scored files, by name
    unlabelled: dict[str, list[Example]] = field(default_factory=dict)  # only predicted, by name
    repairs: dict[str, int] = field(default_factory=dict)  # repaired or dropped rows, by kind
    groups: dict[str, int] = field(default_factory=dict)  # groups per split, see `count_groups`


def task_files(task: TaskConfig) -> list[tuple[str, Path]]:
    """Return all files that the task reads, as (name below data_dir, path).

    Raises a UsageError if the training, development or test file is missing.
    """
    files: dict[str, Path] = {}
    for name, path in _named_files(task).items():
        if task.reader in FOLDERS:
            own = FOLDERS[task.reader](path)
            files |= {f"{name}/{each.relative_to(path.parent)}": each for each in own}
        else:
            files[name] = path
        if task.reader == "wic" and gold_file(path).is_file():
            files[f"{name}, labels"] = gold_file(path)
    return list(files.items())


def missing_files(task: TaskConfig) -> list[str]:
    """Return the skipped files: named in task.further_tests or task.unlabelled, but not present."""
    there = _named_files(task)
    return [
        name
        for name in (*task.further_tests.values(), *task.unlabelled.values())
        if name not in there
    ]


def _named_files(task: TaskConfig) -> dict[str, Path]:
    """Return the files or folders that the task names and that exist."""
    if task.train is None:
        if task.name is not None:
            raise UsageError(
                f"task.train is not set: name the training file of task={task.name}; it lies below "
                "task.data_dir"
            )
        raise UsageError("task.train is not set: choose a task, for example task=polarity")
    if task.data_dir is None:
        raise UsageError(f"task.data_dir is not set: name the folder that holds {task.train}")
    folder = Path(task.data_dir)
    names = [name for name in (task.train, task.dev, task.test) if name is not None]
    for name in names:
        if not is_there(task, name):
            raise UsageError(f"task.data_dir={folder}: there is no file {name} in it")
        if (folder / name).is_dir() and not FOLDERS[task.reader](folder / name):
            raise UsageError(
                f"task.data_dir={folder}: the folder {name} has no files of "
                f"task.reader={task.reader}"
            )
    more = [*task.further_tests.values(), *task.unlabelled.values()]
    return {name: folder / name for name in (*names, *(n for n in more if is_there(task, n)))}


def is_there(task: TaskConfig, name: str) -> bool:
    """Return True if a file of the task exists; for some readers it is a folder."""
    path = Path(str(task.data_dir)) / name
    return path.is_file() or (task.reader in FOLDERS and path.is_dir())


def read_splits(task: TaskConfig, seed: int) -> Splits:
    """Read all files, split off what has no file, and draw the samples.

    Raises a SesameError for faulty files, empty splits, unknown labels and shared groups.
    """
    files = _named_files(task)
    repairs: Counter[str] = Counter()

    def read(name: str, has_labels: bool = True) -> list[Example]:
        file = TaskFile(files[name], has_labels, repairs)
        # An answer to a file without labels stands at its row's number, so none is left out.
        where = task.where if has_labels else {}
        if has_labels and name != task.train:
            where = where | task.scored_where
        examples = list(READERS[task.reader](file, replace(task, where=where)))
        if not examples and where:
            raise SesameError(
                f"{file.path}: too few examples; no row has the values of task.where={where}"
            )
        if not examples:
            raise SesameError(f"{file.path}: too few examples; the file has none")
        return examples

    assert task.train is not None
    train = read(task.train)
    labels = _labels(task, train)
    scored = {
        name: read(name)
        for name in (task.dev, task.test, *task.further_tests.values())
        if name in files
    }
    for name, examples in {task.train: train, **scored}.items():
        _check_labels(files[name], examples, task, labels)

    test, dev = scored.get(task.test or ""), scored.get(task.dev or "")
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
            few = "examples" if task.group_field is None else f"groups ({task.group_field})"
            raise SesameError(f"{files[task.train]}: too few {few}; none is left for {name}")
    parts = {"training": train, "development": dev} | ({} if test is dev else {"test": test})
    refuse_shared_groups(task, parts)
    for name, file in task.further_tests.items():
        if file in files:
            refuse_shared_groups(task, {"training": train, name: scored[file]})
    count = round(len(train) * task.train_fraction)
    count = min(count, task.train_examples or count)
    if not count:
        raise SesameError(
            f"task.train_fraction={task.train_fraction}: leaves none of {len(train)} training "
            "examples; use a larger fraction"
        )
    train = _sample(train, count, seed)
    dev = _sample(dev, task.dev_examples, CUT_SEED)
    test = _sample(test, task.test_examples, CUT_SEED)
    return Splits(
        train,
        dev,
        test,
        labels,
        {
            name: _sample(scored[file], task.test_examples, CUT_SEED)
            for name, file in task.further_tests.items()
            if file in files
        },
        {
            name: read(file, has_labels=False)
            for name, file in task.unlabelled.items()
            if file in files
        },
        dict(repairs),
        count_groups(task, {"train": train, "dev": dev, "test": test}),
    )


def read_test(task: TaskConfig, labels: Sequence[str], seed: int) -> list[Example]:
    """Return the test examples that a finished model with these labels is scored on.

    Reads only the test file, else the development file, if the task names one; they need no
    training file. Raises a SesameError for a faulty file and for a label that the model lacks.
    """
    name = task.test or task.dev
    if name is None or task.test_documents:
        examples, path = read_splits(task, seed).test, str(task.train)
    else:
        alone = replace(task, train=name, dev=None, test=None, further_tests={}, unlabelled={})
        file = TaskFile(_named_files(alone)[name])
        where = task.where | task.scored_where
        examples, path = (
            list(READERS[task.reader](file, replace(task, where=where))),
            str(file.path),
        )
        if not examples:
            raise SesameError(f"{path}: too few examples; the file has none to score")
        examples = _sample(examples, task.test_examples, CUT_SEED)
    for example in examples if task.kind in LABELLED else ():
        found = (str(example.gold),) if task.kind == "classify" else example.tags
        if not set(labels).issuperset(found):
            raise SesameError(
                f"{path}:{example.line}: the label is not among the {len(labels)} of the model; "
                "evaluate on a file with the same labels"
            )
    return examples


def _labels(task: TaskConfig, train: Sequence[Example]) -> list[str]:
    """Return the labels or tags in the head's order.

    Raises a SesameError if the training examples leave nothing to learn.
    """
    if task.kind in ("classify", "regress") and len({example.gold for example in train}) == 1:
        raise SesameError(
            f"task.train={task.train}: all {len(train)} examples have the same label in column "
            f"{task.label}, so there is nothing to learn; set task.label"
        )
    if task.kind not in LABELLED:
        return []
    if task.kind == "classify":
        return task.labels or sorted({str(example.gold) for example in train})
    if task.kind == "multilabel" or task.reader == "conllu":
        found = task.labels or sorted({tag for example in train for tag in example.tags})
        if not found:
            raise SesameError(
                f"task.train={task.train}: no example has a label in column {task.label}; set "
                "task.label"
            )
        return found
    kinds = task.labels or sorted(
        {tag[2:] for example in train for tag in example.tags if tag != "O"}
    )
    if not kinds:
        raise SesameError(f"task.train={task.train}: no word has a tag other than O")
    return ["O", *(f"{prefix}-{kind}" for kind in kinds for prefix in "BI")]


def _check_labels(
    path: Path, examples: Sequence[Example], task: TaskConfig, labels: Sequence[str]
) -> None:
    if task.kind not in LABELLED:
        return
    known = set(labels)
    for example in examples:
        found = (str(example.gold),) if task.kind == "classify" else example.tags
        if not known.issuperset(found):
            source = "task.labels" if task.labels else f"the training file {task.train}"
            raise SesameError(
                f"{path}:{example.line}: a label is not among the {len(labels)} of {source}; "
                "correct it, or name all labels in task.labels"
            )


def _part(
    examples: Sequence[Example], chosen: Callable[[Example], bool]
) -> tuple[list[Example], list[Example]]:
    inside: list[Example] = []
    outside: list[Example] = []
    for example in examples:
        (inside if chosen(example) else outside).append(example)
    return inside, outside


def _hash(purpose: str, group: str) -> float:
    # Half a surrogate pair may come from JSON, or from a file name that is not UTF-8.
    name = f"{purpose}\x1f{group}".encode(errors="surrogatepass")
    digest = hashlib.blake2b(name, digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _sample(examples: list[Example], count: int | None, seed: int) -> list[Example]:
    if count is None or count >= len(examples):
        return examples
    return [examples[i] for i in np.random.default_rng(seed).permutation(len(examples))[:count]]
