"""Read sentences, pairs and choices from tables: .tsv or .txt (no quoting), .csv or .jsonl.

The first line of a .tsv or .csv file names its columns. If task.columns is set and the first line
does not contain task.text_a, the file has no header and task.columns names the columns. (CoLA's
training file has no header, its test file has one.)
"""

import csv
import itertools
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_prep.errors import SesameError
from pipeline.tasks.choices import ChoiceError, choice_number, choice_texts
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import UNREADABLE_JSON, Example, Gold, TaskFile, read_lines
from pipeline.tasks.groups import GroupFinder

Row = tuple[int, dict[str, Any]]  # first line number, cells by column


def read_table(file: TaskFile, task: TaskConfig) -> Iterator[Example]:
    """Yield the examples of one file; every error names file and line."""
    return read_rows(file, task, _rows(file, task))


def read_rows(file: TaskFile, task: TaskConfig, rows: Iterator[Row]) -> Iterator[Example]:
    """Yield the examples of a file's rows."""
    columns = [column for column in (task.text_a, task.text_b) if column is not None]
    labels = [task.label] if file.has_labels else []
    needed = [*columns, *task.choices, *labels, *task.where]
    groups = GroupFinder(file, task)
    for line, named in rows:
        row = {task.aliases.get(column, column): cell for column, cell in named.items()}
        _require_columns(file.path, line, row, needed)
        group = groups.find(row)
        if any(str(row[column]) != value for column, value in task.where.items()):
            continue
        if task.kind == "choice":
            try:
                texts = choice_texts(row, task)
            except ChoiceError as error:
                file.refuse_or_drop(task, line, str(error))
                continue
        else:
            texts = tuple(_text(row[column]) for column in columns)
            empty = next((c for c, cell in zip(columns, texts, strict=True) if not cell), None)
            # Predictions for an unlabelled file go by row number, so none of its rows is dropped.
            if empty is not None and file.has_labels:
                file.refuse_or_drop(task, line, f"the sentence in column {empty} is empty")
                continue
        cells = tuple(map(file.without_surrogates, texts))
        gold = _gold(file, line, row, task) if file.has_labels else None
        if task.kind == "choice" and gold is not None:
            _require_choice(file, line, str(gold), len(cells) - 1, task)
        own = "\x1f".join(cells) if group is None else group
        yield Example(cells, gold, own, line, is_grouped=group is not None)
    groups.refuse_absent()


def _rows(file: TaskFile, task: TaskConfig) -> Iterator[Row]:
    path = file.path
    if path.suffix == ".jsonl":
        return json_rows(path)
    if path.suffix == ".csv":
        return _named(file, _csv_cells(path), task)
    if path.suffix in (".tsv", ".txt"):
        return _named(file, ((line, text.split("\t")) for line, text in read_lines(path)), task)
    raise SesameError(f"{path}: a table must end in .tsv, .txt, .csv or .jsonl")


def _csv_cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader((f"{text}\n" for _, text in read_lines(path)), strict=True)
    line = 1
    try:
        for cells in reader:
            yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise SesameError(f"{path}:{line}: not a CSV row ({error}); fix its quotes") from None


def _named(
    file: TaskFile, lines: Iterator[tuple[int, list[str]]], task: TaskConfig
) -> Iterator[Row]:
    first = next(lines, None)
    if first is None:
        raise SesameError(f"{file.path}: the file is empty")
    names = first[1]
    if task.columns and task.text_a not in names:
        names, lines = task.columns, itertools.chain([first], lines)
    for line, cells in lines:
        if len(cells) == len(names):
            yield line, dict(zip(names, cells, strict=True))
        else:
            file.refuse_or_drop(
                task,
                line,
                f"{len(cells)} columns, expected {len(names)}; "
                "look for a missing or extra separator",
            )


def json_rows(path: Path) -> Iterator[Row]:
    """Yield the line number and the object of each line; every error names file and line."""
    for line, text in read_lines(path):
        try:
            row = json.loads(text)
        except json.JSONDecodeError as error:
            raise SesameError(
                f"{path}:{line}: not JSON at character {error.colno} ({error.msg})"
            ) from None
        except (ValueError, RecursionError) as error:
            raise SesameError(f"{path}:{line}: {UNREADABLE_JSON}") from error
        if not isinstance(row, dict):
            raise SesameError(f"{path}:{line}: each line must be one JSON object")
        yield line, row


def _require_columns(path: Path, line: int, row: dict[str, Any], needed: list[str]) -> None:
    for column in needed:
        if column in row:
            continue
        if all(re.fullmatch(r"[\w.-]{1,40}", name) for name in row):
            raise SesameError(
                f"{path}:{line}: no column {column}; the columns are {', '.join(row)}; set "
                "task.text_a, task.text_b, task.label and task.where to fit, or name a file "
                "without labels under task.unlabelled"
            )
        # The first row may contain private text, so the message must not quote it.
        raise SesameError(
            f"{path}:{line}: no column {column}, and the first line does not look like column "
            "names; name them with task.columns if the file has no header"
        )


def _labels(file: TaskFile, cell: Any, task: TaskConfig) -> tuple[str, ...]:
    """Return the distinct labels of an example; an empty cell or list has none."""
    given = cell if isinstance(cell, list) else _text(cell).split(task.label_separator)
    labels = (file.without_surrogates(_text(label)) for label in given)
    named = (task.label_aliases.get(label, label) for label in labels if label)
    return tuple(dict.fromkeys(named))


def _require_choice(file: TaskFile, line: int, label: str, choices: int, task: TaskConfig) -> None:
    number = choice_number(label, task.labels)
    if number is None or number >= choices:
        raise SesameError(
            f"{file.path}:{line}: the label in column {task.label} names none of the {choices} "
            "choices; it must be a number from 0, or one of task.labels"
        )


def _text(cell: Any) -> str:
    """Return a cell's text; JSON's null is empty."""
    return "" if cell is None else str(cell).strip()


def _gold(file: TaskFile, line: int, row: dict[str, Any], task: TaskConfig) -> Gold:
    if task.kind == "multilabel":
        return _labels(file, row[task.label], task)
    path, label = file.path, file.without_surrogates(_text(row[task.label]))
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
    return number
