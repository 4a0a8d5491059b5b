"""Sentence and pair tasks from tables: .tsv (GLUE's: no quoting), .csv or .jsonl.

The first line of a .tsv or .csv file names its columns unless task.columns does.
"""

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_prep.errors import SesameError
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import Example, read_lines

Row = tuple[int, dict[str, Any]]  # the line it starts on, and its cells by column


def read_table(path: Path, task: TaskConfig) -> Iterator[Example]:
    """The examples of one file; every fault is named by file and line."""
    texts = [column for column in (task.text_a, task.text_b) if column is not None]
    needed = [*texts, task.label, *task.where]
    for line, row in _rows(path, task.columns):
        _require_columns(path, line, row, needed)
        if any(str(row[column]) != value for column, value in task.where.items()):
            continue
        cells = tuple(str(row[column]).strip() for column in texts)
        for column, cell in zip(texts, cells, strict=True):
            if not cell:
                raise SesameError(
                    f"{path}:{line}: the sentence in column {column} is empty; remove the row"
                )
        yield Example(cells, _gold(path, line, row, task), "\x1f".join(cells), line)


def _rows(path: Path, columns: list[str]) -> Iterator[Row]:
    if path.suffix == ".jsonl":
        return _json_rows(path)
    if path.suffix == ".csv":
        return _named(path, _csv_cells(path), columns)
    if path.suffix == ".tsv":
        return _named(path, ((line, text.split("\t")) for line, text in read_lines(path)), columns)
    raise SesameError(f"{path}: a table must end in .tsv, .csv or .jsonl")


def _csv_cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader((f"{text}\n" for _, text in read_lines(path)), strict=True)
    line = 1
    try:
        for cells in reader:
            yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise SesameError(f"{path}:{line}: not a CSV row ({error}); mend its quotes") from None


def _named(path: Path, lines: Iterator[tuple[int, list[str]]], columns: list[str]) -> Iterator[Row]:
    names = columns or next(lines, (1, []))[1]
    if not names:
        raise SesameError(f"{path}: the file is empty")
    for line, cells in lines:
        if len(cells) != len(names):
            raise SesameError(
                f"{path}:{line}: {len(cells)} columns where there should be {len(names)}; "
                "look for a missing or extra separator"
            )
        yield line, dict(zip(names, cells, strict=True))


def _json_rows(path: Path) -> Iterator[Row]:
    for line, text in read_lines(path):
        try:
            row = json.loads(text)
        except json.JSONDecodeError as error:
            raise SesameError(
                f"{path}:{line}: not JSON at character {error.colno} ({error.msg})"
            ) from None
        if not isinstance(row, dict):
            raise SesameError(f"{path}:{line}: each line must be one JSON object")
        yield line, row


def _require_columns(path: Path, line: int, row: dict[str, Any], needed: list[str]) -> None:
    for column in needed:
        if column in row:
            continue
        if all(re.fullmatch(r"[\w.-]{1,40}", name) for name in row):
            raise SesameError(
                f"{path}:{line}: no column {column}; the columns are {', '.join(row)}; "
                "set task.text_a, task.text_b, task.label and task.where to fit"
            )
        # A first row that holds sentences must not show up in a message.
        raise SesameError(
            f"{path}:{line}: no column {column}, and the first line does not look like names of "
            "columns; name them with task.columns if the file has no header"
        )


def _gold(path: Path, line: int, row: dict[str, Any], task: TaskConfig) -> str | float:
    label = str(row[task.label]).strip()
    if task.kind == "classify":
        return label
    try:
        return float(label)
    except ValueError:
        raise SesameError(
            f"{path}:{line}: the label in column {task.label} is not a number"
        ) from None
