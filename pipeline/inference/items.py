"""Read the items of a file for a fine-tuned model, one at a time.

    .txt       an item per line; the texts of a pair, or a context and its choices, are separated
               by tabs; a model of task.reader=wic reads the lines of Words in Context's files
    .tsv .csv  a row per item; the columns have the task's names (task.text_a, task.text_b,
               task.choices)
    .jsonl     an object per item: those names, or `text`; `words` for tagging; `question` and
               `context` for spans; an `id` is repeated in the output
    .conll     a word per line, blank lines between sentences (tagging); a model of CoNLL-U's or
               CoNLL-2012's files takes the word from the column where they have it
    .conllu    Universal Dependencies' files (tagging)
    .json      SQuAD's questions (spans)
    -          standard input: lines of text, or of JSON, which begin with {
A line that cannot be read is an item with its fault, so that the output has a line for each.
"""

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from data_prep.errors import UsageError
from data_prep.files import is_text
from pipeline.inference.lines import Line, UnfitFileError
from pipeline.inference.models import FinetunedModel, Item, strings_of
from pipeline.inference.sentences import read_conll, read_conllu
from pipeline.tasks.choices import ChoiceError, flatten
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import TaskFile
from pipeline.tasks.rows import (
    NOT_UTF8,
    Cells,
    Fault,
    Lines,
    json_rows,
    named_rows,
    renamed,
    repeated_column,
    split_rows,
    text_columns,
    texts_of,
)
from pipeline.tasks.squad import read_squad
from pipeline.tasks.wic import FAULT as NOT_WIC
from pipeline.tasks.wic import marked_pair

STANDARD_INPUT = "-"
ENDINGS = (".txt", ".tsv", ".csv", ".jsonl")
MORE_ENDINGS = {"tag": (".conll", ".conllu"), "span": (".json",)}  # by kind of task
OF_OFFSETS = ("tag", "span")  # kinds whose answers are places in the text
HALF_A_CHARACTER = "has an escape of half a character"


def read_items(path: str, model: FinetunedModel) -> Iterator[Line]:
    """Yield the items of a file, in order; bounded memory but for SQuAD's files.

    Raises UsageError for a file that cannot hold the model's items.
    """
    task = model.finetuned.task
    ending = STANDARD_INPUT if path == STANDARD_INPUT else Path(path).suffix.lower()
    readers = {
        STANDARD_INPUT: _read_mixed,
        ".txt": _read_text,
        ".jsonl": _read_json,
        ".tsv": _read_tsv,
        ".csv": _read_csv,
        ".conll": read_conll,
        ".conllu": read_conllu,
    }
    endings = (*ENDINGS, *MORE_ENDINGS.get(model.kind, ()))
    if ending not in (STANDARD_INPUT, *endings):
        raise UsageError(f"input={path}: a file for this model ends in {' or '.join(endings)}")
    if ending == ".json":
        yield from _read_questions(Path(path), task)
        return
    with _opened(path) as lines:
        try:
            for line in readers[ending](_decoded(lines), task):
                yield _checked(line, model)
        except UnfitFileError as error:
            raise UsageError(f"input={path}: {error}") from error


def check_input(path: str, model: FinetunedModel) -> None:
    """Raise UsageError for a file that cannot hold the model's items, before any work."""
    if path == STANDARD_INPUT:
        _standard_input()
    elif Path(path).suffix.lower() == ".json":
        deque(read_items(path, model), maxlen=0)  # a fault of SQuAD's file concerns all of it
    else:
        next(read_items(path, model), None)


@contextmanager
def _opened(path: str) -> Iterator[Iterable[bytes]]:
    if path == STANDARD_INPUT:
        yield _standard_input()
        return
    if Path(path).exists() and not Path(path).is_file():  # it is opened twice
        raise UsageError(f"input={path}: not a regular file; name a file, or pipe it to input=-")
    with ExitStack() as stack:
        try:
            stream = stack.enter_context(Path(path).open("rb"))
        except OSError as error:
            raise UsageError(f"input={path}: cannot be read ({error.strerror})") from error
        yield stream


def _standard_input() -> BinaryIO:
    if sys.stdin is None:
        raise UsageError("input=-: standard input is closed; pipe lines to it, or name a file")
    return sys.stdin.buffer


def _decoded(lines: Iterable[bytes]) -> Iterator[tuple[int, str | None]]:
    """Yield (number, text without its line end); None for a line that is not UTF-8."""
    for number, raw in enumerate(lines, start=1):
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            yield number, None
            continue
        yield number, text.rstrip("\r\n")


def _checked(line: Line, model: FinetunedModel) -> Line:
    """Return the line, with a fault if its item is not of the model's form."""
    given = () if line.item is None else strings_of(line.item)
    if not all(map(is_text, (line.id or "", *given))):
        return Line(line.number, None, fault=HALF_A_CHARACTER)
    if line.item is None:
        return line
    try:
        model.example(line.item)
    except UsageError:
        return Line(line.number, None, line.id, f"must be {model.item_form}")
    return line


def _read_mixed(lines: Lines, task: TaskConfig) -> Iterator[Line]:
    for number, text in lines:
        is_json = text is not None and text.lstrip().startswith("{")
        yield from (_read_json if is_json else _read_text)(iter([(number, text)]), task)


def _read_text(lines: Lines, task: TaskConfig) -> Iterator[Line]:
    for number, text in lines:
        if text is None:
            yield Line(number, None, fault=NOT_UTF8)
        elif task.reader == "wic":
            marked = marked_pair(text)
            yield Line(number, marked, fault="" if marked else NOT_WIC)
        else:
            yield Line(number, _text_item(text, task))


def _text_item(text: str, task: TaskConfig) -> Item:
    if task.kind == "choice":
        context, *choices = text.split("\t")
        return (context, choices)
    if task.text_b is None and task.kind != "span":
        return text
    first, tab, second = text.partition("\t")
    return (first, second) if tab else first


def _read_json(lines: Lines, task: TaskConfig) -> Iterator[Line]:
    for number, row in json_rows(lines):
        if isinstance(row, Fault):
            yield Line(number, None, fault=row.reason)
            continue
        own = row.get("id")
        line = (_offset_line if task.kind in OF_OFFSETS else _json_line)(number, row, task)
        yield replace(line, id=None if own is None else str(own))


def _offset_line(number: int, row: dict[str, Any], task: TaskConfig) -> Line:
    """Read a text, or a question and its context, as they are: answers have places in them."""
    words = row.get("words")
    if task.kind == "tag" and isinstance(words, list) and all(isinstance(w, str) for w in words):
        return Line(number, words)
    found = [row.get(key) for key in _keys(task)]
    if found == [None]:
        found = [row.get("text")]
    if not all(isinstance(value, str) for value in found):
        return Line(number, None, fault=_lacks(task))
    texts: list[Any] = found
    return Line(number, _item(tuple(texts)))


def _json_line(number: int, row: dict[str, Any], task: TaskConfig) -> Line:
    """Read a row by the task's columns, as training does; also `text` for a single text."""
    try:
        flat = flatten(row, task.labels) if task.reader == "commonsense_qa" else row
    except ChoiceError as error:
        return Line(number, None, fault=str(error))
    named = renamed(flat, task)
    if task.text_b is None and task.text_a not in named and "text" in named:
        named[task.text_a] = named["text"]
    if any(named.get(column) is None for column in text_columns(task)):
        return Line(number, None, fault=_lacks(task))
    return _row_line(number, named, task)


def _row_line(number: int, row: dict[str, Any], task: TaskConfig) -> Line:
    if not row.keys() >= set(_keys(task)):
        return Line(number, None, fault=_lacks(task))
    texts = texts_of(row, task)
    if isinstance(texts, Fault):
        return Line(number, None, fault=texts.reason)
    return Line(number, (texts[0], list(texts[1:])) if task.kind == "choice" else _item(texts))


def _item(texts: tuple[str, ...]) -> Item:
    return texts[0] if len(texts) == 1 else (texts[0], texts[1])


def _lacks(task: TaskConfig) -> str:
    return f"has no text in {', '.join(_keys(task))}"


def _keys(task: TaskConfig) -> list[str]:
    """Return the names that a table or an object must have."""
    if task.kind == "span":
        return ["question", "context"]
    return [*text_columns(task), *task.choices]


def _read_tsv(lines: Lines, task: TaskConfig) -> Iterator[Line]:
    return _read_table(split_rows(lines, is_csv=False), task)


def _read_csv(lines: Lines, task: TaskConfig) -> Iterator[Line]:
    return _read_table(split_rows(lines, is_csv=True), task)


def _read_table(cells: Iterator[Cells], task: TaskConfig) -> Iterator[Line]:
    table = named_rows(cells, task)
    if table is None:
        return
    names, rows = table
    wanted = _keys(task)
    if fault := repeated_column(names, wanted):
        raise UnfitFileError(fault)
    if not set(wanted) <= set(names):
        raise UnfitFileError(
            f"its first line must name the columns {', '.join(wanted)}; rename them, or give a "
            ".txt or .jsonl file"
        )
    for number, row in rows:
        if isinstance(row, Fault):
            yield Line(number, None, fault=row.reason)
        elif task.kind == "span":
            yield Line(number, (row["question"].strip(), row["context"].strip()))
        else:
            yield _row_line(number, row, task)


def _read_questions(path: Path, task: TaskConfig) -> Iterator[Line]:
    file = TaskFile(path, has_labels=False)
    for number, example in enumerate(read_squad(file, task), start=1):
        question, passage = example.texts
        yield Line(number, (question, passage), example.id)
