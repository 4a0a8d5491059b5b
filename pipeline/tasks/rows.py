"""Read the rows of tables: .tsv (no quoting), .csv and .jsonl, for training and for prediction.

Training stops at a faulty row; a prediction answers it with its fault. Apart from that both read a
table by the same rules. Blank lines are skipped: in tables of one column, an empty line of a .tsv
is an empty text.
"""

import csv
import itertools
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.tasks.choices import ChoiceError, choice_texts
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import UNREADABLE_JSON, cell_text, is_plain

LONGEST_CELL = 1 << 30  # characters of a CSV cell; csv's own limit is 131,072
NOT_UTF8 = "not UTF-8"


@dataclass(frozen=True)
class Fault:
    """Why a row cannot be read, without any of its text."""

    reason: str
    may_be_dropped: bool = False  # with task.faulty=drop


Lines = Iterable[tuple[int, str | None]]  # number, and the text; None if it is not UTF-8
Cells = tuple[int, list[str] | Fault]  # first line number, and the cells
Row = tuple[int, dict[str, Any] | Fault]  # first line number, and the cells by column


def json_rows(lines: Lines) -> Iterator[Row]:
    """Yield the object of each line."""
    for number, text in lines:
        if text is None:
            yield number, Fault(NOT_UTF8)
        elif text.strip():
            yield number, _object(text)


def _object(text: str) -> dict[str, Any] | Fault:
    try:
        row = json.loads(text)
    except json.JSONDecodeError as error:
        return Fault(f"not JSON at character {error.colno} ({error.msg})")
    except (ValueError, RecursionError):
        return Fault(UNREADABLE_JSON)
    return row if isinstance(row, dict) else Fault("each line must be one JSON object")


def split_rows(lines: Lines, is_csv: bool) -> Iterator[Cells]:
    """Yield the cells of each row."""
    if is_csv:
        return _csv_cells(lines)
    return ((n, Fault(NOT_UTF8) if text is None else text.split("\t")) for n, text in lines)


def _csv_cells(lines: Lines) -> Iterator[Cells]:
    is_torn = False  # a line of the row is not UTF-8

    def texts() -> Iterator[str]:
        nonlocal is_torn
        for _, text in lines:
            is_torn = is_torn or text is None
            yield f"{text or ''}\n"

    csv.field_size_limit(LONGEST_CELL)
    rows = csv.reader(texts(), strict=True)  # else an open quote takes all rows after it
    while True:
        start = rows.line_num + 1
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield start, Fault(f"not a CSV row ({error}); fix its quotes")
        else:
            yield start, Fault(NOT_UTF8) if is_torn else cells
        is_torn = False


def named_rows(rows: Iterator[Cells], task: TaskConfig) -> tuple[list[str], Iterator[Row]] | None:
    """Return the names of a table's columns, after task.aliases, and its rows; None if it is empty.

    The first row names the columns, unless task.columns does and the first row has no task.text_a.
    If the first row has a fault, there are no names, and the fault is yielded.
    """
    first = next(rows, None)
    if first is None:
        return None
    aliases = task.aliases
    given = first[1] if isinstance(first[1], list) else []
    names = [aliases.get(name, name) for name in given]
    if task.columns and task.text_a not in names:
        names = [aliases.get(name, name) for name in task.columns]
        rows = itertools.chain([first], rows)
    elif not names:
        rows = itertools.chain([first], rows)
    return names, _by_name(names, rows)


def _by_name(names: list[str], rows: Iterator[Cells]) -> Iterator[Row]:
    for line, cells in rows:
        if isinstance(cells, Fault):
            yield line, cells
        elif not cells or (cells == [""] and len(names) > 1):
            continue  # an empty line
        elif len(cells) == len(names):
            yield line, dict(zip(names, cells, strict=True))
        else:
            counts = f"{len(cells)} columns, expected {len(names)}"
            advice = "look for a missing or extra separator"
            yield line, Fault(f"{counts}; {advice}", may_be_dropped=True)


def repeated_column(names: list[str], needed: Collection[str]) -> str:
    """Return the fault of a table with several columns of a needed name; "" if it has none."""
    counts = Counter(names)
    for column in needed:
        if counts[column] > 1:
            return f"{counts[column]} columns are named {column}; keep one"
    return ""


def renamed(row: Mapping[str, Any], task: TaskConfig) -> dict[str, Any]:
    """Return a row of JSON after task.aliases."""
    return {task.aliases.get(column, column): cell for column, cell in row.items()}


def text_columns(task: TaskConfig) -> list[str]:
    """Return the columns of a task's texts, without its choices."""
    return [task.text_a] if task.text_b is None else [task.text_a, task.text_b]


def texts_of(row: Mapping[str, Any], task: TaskConfig) -> tuple[str, ...] | Fault:
    """Return the texts of a row, or the context and the choices. A column must not be missing."""
    if task.kind == "choice":
        try:
            return choice_texts(row, task)
        except ChoiceError as error:
            return Fault(str(error), may_be_dropped=True)
    cells = [row[column] for column in text_columns(task)]
    if not all(map(is_plain, cells)):
        return Fault("has a list or an object where a text belongs", may_be_dropped=True)
    return tuple(map(cell_text, cells))
