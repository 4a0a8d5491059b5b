"""Read sentences, pairs and choices from tables: .tsv or .txt (no quoting), .csv or .jsonl.

The first line of a .tsv or .csv file names its columns. If task.columns is set and the first line
does not contain task.text_a, the file has no header and task.columns names the columns. (CoLA's
training file has no header, its test file has one.)
"""

import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from data_prep.errors import SesameError
from pipeline.tasks import rows
from pipeline.tasks.choices import choice_name, choice_number
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import (
    Example,
    Gold,
    TaskFile,
    cell_text,
    is_plain,
    read_lines,
)
from pipeline.tasks.groups import GroupFinder

Row = tuple[int, dict[str, Any]]  # first line number, cells by column
LARGEST = 1e30  # number to predict; models compute in fp32


def read_table(file: TaskFile, task: TaskConfig) -> Iterator[Example]:
    """Yield the examples of one file; every error names file and line."""
    return read_rows(file, task, _rows(file, task))


def read_rows(file: TaskFile, task: TaskConfig, found: Iterator[Row]) -> Iterator[Example]:
    """Yield the examples of a file's rows."""
    needed = _needed(file, task)
    groups = GroupFinder(file, task)
    for line, row in found:
        _require_columns(file.path, line, row, task, needed)
        group = groups.find(row)
        if any(str(row[column]) != value for column, value in task.where.items()):
            continue
        texts = _texts(file, line, row, task)
        if texts is None:
            continue
        cells = tuple(map(file.without_surrogates, texts))
        gold = _gold(file, line, row, task) if file.has_labels else None
        if task.kind == "choice" and gold is not None:
            gold = _choice(file, line, str(gold), len(cells) - 1, task)
        yield Example(cells, gold, "\x1f".join(cells), line).in_group(group)
    groups.refuse_absent()


def _needed(file: TaskFile, task: TaskConfig) -> list[str]:
    """Return the columns that every row must have."""
    labels = [task.label] if file.has_labels else []
    return [*rows.text_columns(task), *task.choices, *labels, *task.where]


def _texts(
    file: TaskFile, line: int, row: dict[str, Any], task: TaskConfig
) -> tuple[str, ...] | None:
    """Return the texts of a row; None if it is faulty and dropped."""
    texts = rows.texts_of(row, task)
    if isinstance(texts, rows.Fault):
        file.refuse_or_drop(task, line, texts.reason)
        return None
    # Predictions for an unlabelled file go by row number, so none of its rows is dropped.
    if task.kind != "choice" and file.has_labels and not all(texts):
        empty = rows.text_columns(task)[texts.index("")]
        file.refuse_or_drop(task, line, f"the sentence in column {empty} is empty")
        return None
    return texts


def _rows(file: TaskFile, task: TaskConfig) -> Iterator[Row]:
    path = file.path
    if path.suffix == ".jsonl":
        return ((line, rows.renamed(row, task)) for line, row in json_rows(path))
    if path.suffix not in (".tsv", ".txt", ".csv"):
        raise SesameError(f"{path}: a table must end in .tsv, .txt, .csv or .jsonl")
    table = rows.named_rows(rows.split_rows(read_lines(path), path.suffix == ".csv"), task)
    if table is None:
        raise SesameError(f"{path}: the file is empty")
    names, found = table
    fault = rows.repeated_column(names, _needed(file, task))
    if fault:
        raise SesameError(f"{path}: {fault}")
    return _sound(file, task, found)


def _sound(file: TaskFile, task: TaskConfig | None, found: Iterable[rows.Row]) -> Iterator[Row]:
    """Yield the rows without a fault; a fault is refused, or dropped where the task says so."""
    for line, row in found:
        if not isinstance(row, rows.Fault):
            yield line, row
        elif row.may_be_dropped and task is not None:
            file.refuse_or_drop(task, line, row.reason)
        else:
            raise SesameError(f"{file.path}:{line}: {row.reason}")


def json_rows(path: Path) -> Iterator[Row]:
    """Yield the line number and the object of each line; every error names file and line.

    Empty lines are skipped.
    """
    return _sound(TaskFile(path), None, rows.json_rows(read_lines(path)))


def _require_columns(
    path: Path, line: int, row: dict[str, Any], task: TaskConfig, needed: list[str]
) -> None:
    choices = "task.choices, " if task.choices else ""
    for column in needed:
        if column in row:
            continue
        if all(re.fullmatch(r"[\w.-]{1,40}", name) for name in row):
            raise SesameError(
                f"{path}:{line}: no column {column}; the columns are {', '.join(row)}; set "
                f"task.text_a, task.text_b, {choices}task.label and task.where to fit, or name a "
                "file without labels under task.unlabelled"
            )
        # The first row may contain private text, so the message must not quote it.
        raise SesameError(
            f"{path}:{line}: no column {column}, and the first line does not look like column "
            "names; name them with task.columns if the file has no header"
        )


def _labels(file: TaskFile, line: int, cell: Any, task: TaskConfig) -> tuple[str, ...]:
    """Return the distinct labels of an example; an empty cell or list has none."""
    given = cell if isinstance(cell, list) else [cell]
    if not all(map(is_plain, given)):
        raise _not_a_label(file, line, task)
    if not isinstance(cell, list):
        given = cell_text(cell).split(task.label_separator)
    labels = (file.without_surrogates(cell_text(label)) for label in given)
    named = (task.label_aliases.get(label, label) for label in labels if label)
    return tuple(dict.fromkeys(named))


def _not_a_label(file: TaskFile, line: int, task: TaskConfig) -> SesameError:
    return SesameError(
        f"{file.path}:{line}: column {task.label} has a list or an object where a label belongs"
    )


def _choice(file: TaskFile, line: int, label: str, choices: int, task: TaskConfig) -> str:
    """Return the label of the right choice in one spelling: `01` is 1."""
    number = choice_number(label, task.labels)
    if number is None or number >= choices:
        raise SesameError(
            f"{file.path}:{line}: the label in column {task.label} names none of the {choices} "
            "choices; it must be a number from 0, or one of task.labels"
        )
    return choice_name(number, task.labels)


def _gold(file: TaskFile, line: int, row: dict[str, Any], task: TaskConfig) -> Gold:
    if task.kind == "multilabel":
        return _labels(file, line, row[task.label], task)
    if not is_plain(row[task.label]):
        raise _not_a_label(file, line, task)
    path, label = file.path, file.without_surrogates(cell_text(row[task.label]))
    if not label:
        raise SesameError(
            f"{path}:{line}: column {task.label} has no label; "
            "a file without labels belongs under task.unlabelled"
        )
    if task.kind != "regress":
        return task.label_aliases.get(label, label)
    try:
        number = float(label)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise SesameError(f"{path}:{line}: the label in column {task.label} is not a number")
    if abs(number) > LARGEST:
        raise SesameError(
            f"{path}:{line}: the number in column {task.label} is too large: its size is at most "
            f"{LARGEST:g}; divide all by a factor"
        )
    return number
