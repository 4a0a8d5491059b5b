"""Read the items of a file for a fine-tuned model, one at a time.

    .txt       an item per line; the texts of a pair, or a context and its choices, are separated
               by tabs
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

import csv
import itertools
import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from data_prep.errors import UsageError
from data_prep.files import is_text
from pipeline.inference.models import FinetunedModel, Item
from pipeline.tasks import conll2012, conllu
from pipeline.tasks.choices import ChoiceError, choice_texts, flatten
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.conll import COMMENT, NO_SENTENCE
from pipeline.tasks.examples import Document, Example, TaskFile
from pipeline.tasks.squad import read_squad

STANDARD_INPUT = "-"
ENDINGS = (".txt", ".tsv", ".csv", ".jsonl")
MORE_ENDINGS = {"tag": (".conll", ".conllu"), "span": (".json",)}  # by kind of task
BEGIN_DOCUMENT, END_DOCUMENT = "#begin document (", conll2012.END  # of CoNLL-2012
LONGEST_CELL = 1 << 30  # characters; csv's own limit is 131,072


@dataclass(frozen=True)
class Line:
    """One item of a file, or the fault of a line that has none."""

    number: int  # counted from 1
    item: Item | None
    id: str | None = None
    fault: str = ""


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
        ".conll": _read_conll,
        ".conllu": _read_conllu,
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
        except _NoColumns as error:
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
    if line.item is None:
        return line
    try:
        model.example(line.item)
    except UsageError:
        return Line(line.number, None, line.id, f"must be {model.item_form}")
    return line


Lines = Iterator[tuple[int, str | None]]
NOT_UTF8 = "not UTF-8"


def _read_mixed(lines: Lines, task: TaskConfig) -> Iterator[Line]:
    for number, text in lines:
        is_json = text is not None and text.lstrip().startswith("{")
        yield from (_read_json if is_json else _read_text)(iter([(number, text)]), task)


def _read_text(lines: Lines, task: TaskConfig) -> Iterator[Line]:
    for number, text in lines:
        if text is None:
            yield Line(number, None, fault=NOT_UTF8)
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
    for number, text in lines:
        if text is None:
            yield Line(number, None, fault=NOT_UTF8)
        else:
            yield _json_line(number, text, task)


def _json_line(number: int, text: str, task: TaskConfig) -> Line:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        return Line(number, None, fault="not JSON")
    if not isinstance(row, dict):
        return Line(number, None, fault="not a JSON object")
    if "\\u" in text and not is_text(json.dumps(row, ensure_ascii=False)):
        return Line(number, None, fault="has an escape of half a character")
    own = row.get("id")
    name = None if own is None else str(own)
    words = row.get("words")
    if task.kind == "tag" and isinstance(words, list) and all(isinstance(w, str) for w in words):
        return Line(number, words, name)
    if task.kind == "choice":
        return _choice_line(number, row, name, task)
    found = [row.get(key) for key in _keys(task)]
    if len(found) == 1 and found[0] is None:
        found = [row.get("text")]
    if not all(isinstance(value, str) for value in found):
        lacking = ", ".join(_keys(task))
        return Line(number, None, name, f"has no text in {lacking}")
    texts: list[Any] = found
    return Line(number, texts[0] if len(texts) == 1 else (texts[0], texts[1]), name)


def _choice_line(number: int, row: dict[str, Any], name: str | None, task: TaskConfig) -> Line:
    """Read a row of multiple choice: the task's columns, or its nested form."""
    try:
        flat = flatten(row, task.labels) if task.reader == "commonsense_qa" else row
        context, *choices = choice_texts(flat, task)
    except ChoiceError as error:
        return Line(number, None, name, str(error))
    except KeyError:
        return Line(number, None, name, f"has no text in {', '.join(_keys(task))}")
    return Line(number, (context, choices), name)


def _keys(task: TaskConfig) -> list[str]:
    if task.kind == "span":
        return ["question", "context"]
    pair = [task.text_a] if task.text_b is None else [task.text_a, task.text_b]
    return [*pair, *task.choices]


class _NoColumns(Exception):
    """The first line of a table does not name the task's columns; the message says which."""


Row = tuple[int, list[str] | str]  # line number, and the cells or the fault


def _read_tsv(lines: Lines, task: TaskConfig) -> Iterator[Line]:
    rows = ((n, NOT_UTF8 if text is None else text.split("\t")) for n, text in lines)
    return _read_rows(rows, task)


def _read_csv(lines: Lines, task: TaskConfig) -> Iterator[Line]:
    """Read rows of CSV; a row that is not valid is one fault."""
    place = 0
    is_torn = False  # a line of the row is not UTF-8

    def texts() -> Iterator[str]:
        nonlocal place, is_torn
        for number, text in lines:
            place = number
            is_torn = is_torn or text is None
            yield ("" if text is None else text) + "\n"

    def cells() -> Iterator[Row]:
        nonlocal is_torn
        csv.field_size_limit(LONGEST_CELL)
        rows = csv.reader(texts(), strict=True)  # else an open quote takes all rows after it
        while True:
            start = place + 1
            try:
                row = next(rows)
            except StopIteration:
                return
            except csv.Error as error:
                yield start, f"not CSV ({error})"
            else:
                yield place, NOT_UTF8 if is_torn else row
            is_torn = False

    return _read_rows(cells(), task)


def _read_rows(rows: Iterator[Row], task: TaskConfig) -> Iterator[Line]:
    first = next(rows, None)
    if first is None:
        return
    names = first[1] if isinstance(first[1], list) else []
    wanted = _keys(task)
    renamed = [task.aliases.get(name, name) for name in names]
    if task.columns and task.text_a not in renamed:
        renamed, rows = task.columns, itertools.chain([first], rows)
    if not set(wanted) <= set(renamed):
        raise _NoColumns(
            f"its first line must name the columns {', '.join(wanted)}; rename them, or give a "
            ".txt or .jsonl file"
        )
    places = [renamed.index(name) for name in wanted]
    for number, cells in rows:
        if isinstance(cells, str):
            yield Line(number, None, fault=cells)
            continue
        if len(cells) != len(renamed):
            yield Line(number, None, fault=f"has {len(cells)} columns, not {len(renamed)}")
            continue
        texts = [cells[place].strip() for place in places]
        if task.kind == "choice":
            yield _choice_line(number, dict(zip(wanted, texts, strict=True)), None, task)
        else:
            yield Line(number, texts[0] if len(texts) == 1 else (texts[0], texts[1]))


def _read_conll(lines: Lines, task: TaskConfig) -> Iterator[Line]:
    """Read sentences; a model that was trained with its documents gets them here too."""
    sentences = _sentences(lines, task.reader)
    if task.context == "sentence":
        return (line for line in sentences if line is not None)
    return _in_documents(sentences)


def _read_conllu(lines: Lines, task: TaskConfig) -> Iterator[Line]:
    return _read_conll(lines, replace(task, reader="conllu"))


def _sentences(lines: Lines, reader: str) -> Iterator[Line | None]:
    """Yield the sentences, and None where a document begins; `reader`: see task.reader."""
    words: list[str] = []
    start, fault = 1, ""
    for number, text in itertools.chain(lines, [(0, "")]):
        if text is None:
            fault = NOT_UTF8
            continue
        cells = text.split()
        is_document = bool(cells) and (cells[0] == NO_SENTENCE or text.startswith(BEGIN_DOCUMENT))
        if cells and not is_document:
            word = None if _is_comment(text) else _word(text, reader)
            if word is not None:
                start = start if words else number
                words.append(word)
            continue
        if words or fault:
            yield Line(start, None if fault else words, fault=fault)
            words, fault = [], ""
        if is_document:
            yield None


def _word(text: str, reader: str) -> str | None:
    """Return the word of a row; None for a row of CoNLL-U that only groups or adds words."""
    cells = text.split()
    if reader == "conllu" and len(columns := text.split("\t")) == conllu.COLUMNS:
        return columns[conllu.WORD] if columns[0].isdigit() else None
    if reader == "conll2012" and len(cells) >= conll2012.FEWEST:
        return cells[conll2012.WORD]
    return cells[0]


def _is_comment(text: str) -> bool:
    """Return True for comments of CoNLL-U and of training files; `# O` is a word and its tag."""
    starts = ("# newdoc", "# newpar", END_DOCUMENT)
    return bool(COMMENT.fullmatch(text.strip())) or text.startswith(starts)


def _in_documents(sentences: Iterator[Line | None]) -> Iterator[Line]:
    """Give sentences the document they stand in; holds one document at a time."""
    for is_start, group in itertools.groupby(sentences, key=lambda line: line is None):
        if is_start:
            continue
        own = [line for line in group if line is not None]
        words = [tuple(line.item) if isinstance(line.item, list) else () for line in own]
        document = Document.of(words)
        for number, (line, texts) in enumerate(zip(own, words, strict=True)):
            example = Example(texts, None, "", line.number, document=document, sentence=number)
            yield line if line.item is None else replace(line, item=example)


def _read_questions(path: Path, task: TaskConfig) -> Iterator[Line]:
    file = TaskFile(path, has_labels=False)
    for number, example in enumerate(read_squad(file, task), start=1):
        question, passage = example.texts
        yield Line(number, (question, passage), example.id)
