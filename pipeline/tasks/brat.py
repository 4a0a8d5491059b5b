"""Read tagging tasks from brat's files: a .txt file with the text, an .ann file with its spans.

A named file may be one .txt file, or a folder of them. Each line of the text is a sentence, and a
file is a group: its sentences go to the same split. Of the annotations only text-bound ones are
read (`T1<tab>PER 0 4<tab>Anna`); their offsets count characters of the whole text. With
task.context=document, the lines of a file are each other's context.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_prep.errors import SesameError
from data_prep.text.words import TextWords
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import Document, Example, TaskFile, read_lines
from pipeline.tasks.text_spans import TextSpan, tag_words

ENTITY = re.compile(r"T\d+\t(\S+) (\d{1,9}) (\d{1,9})((?:;\d+ \d+)*)\t(.*)")
BREAKS = str.maketrans("\r\n", "  ")  # one by one, so that offsets stay right


@dataclass(frozen=True)
class Line:
    """A line of a text that has words."""

    number: int  # counted from 1
    first: int  # first word
    last: int  # one past the last word
    begin: int  # first character of the first word
    end: int  # one past the last character of the last word


def brat_files(path: Path) -> list[Path]:
    """Return all files below a folder, or one .txt file with its .ann file if there is one."""
    texts = sorted(path.rglob("*.txt")) if path.is_dir() else [path]
    return [each for text in texts for each in (text, text.with_suffix(".ann")) if each.is_file()]


def read_brat(file: TaskFile, task: TaskConfig) -> Iterator[Example]:
    """Yield the sentences of a file or folder; every error names file and line."""
    for path in brat_files(file.path):
        if path.suffix == ".txt":
            yield from _sentences(TaskFile(path, file.has_labels, file.repairs), task)


def _sentences(file: TaskFile, task: TaskConfig) -> Iterator[Example]:
    text = re.sub("^\ufeff", " ", _text(file))  # a byte order mark, which brat counts
    words = TextWords.of(text.translate(BREAKS), task.text_rule)
    lines = _lines(text, words)
    whole = Document(words, tuple(each.first for each in lines))
    spans = _spans(file, task, words.text) if file.has_labels else []
    if not lines:
        tag_words(file, task, words, spans)  # all of them are faults
    spans_of = _by_line(spans, lines)
    for number, line in enumerate(lines):
        own = words[line.first : line.last]
        gold = tag_words(file, task, own, spans_of[number]) if file.has_labels else None
        if task.context == "document":
            document, sentence = whole, number
        else:
            alone = TextWords.of(words.text[line.begin : line.end], task.text_rule)
            document, sentence = Document(alone, (0,)), 0
        yield Example(
            tuple(own), gold, file.path.name, line.number, document=document, sentence=sentence
        )


def _by_line(spans: list[TextSpan], lines: list[Line]) -> dict[int, list[TextSpan]]:
    """Return the spans by the number of the line in which they begin."""
    found: dict[int, list[TextSpan]] = defaultdict(list)
    ends = [line.end for line in lines]
    for span in spans:
        found[min(bisect_right(ends, span.start), len(lines) - 1)].append(span)
    return found


def _text(file: TaskFile) -> str:
    try:
        return file.path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise SesameError(
            f"{file.path}: byte {error.start} is not UTF-8; convert it, for example with iconv"
        ) from None


def _lines(text: str, words: TextWords) -> list[Line]:
    found, first, end = [], 0, 0
    for number, line in enumerate(text.split("\n"), start=1):
        end += len(line) + 1
        last = int(np.searchsorted(words.characters[:, 1], end, side="right"))
        if last > first:
            begin, stop = int(words.characters[first, 0]), int(words.characters[last - 1, 1])
            found.append(Line(number, first, last, begin, stop))
        first = last
    return found


def _spans(file: TaskFile, task: TaskConfig, text: str) -> list[TextSpan]:
    """Return the annotations of a file; `text` is the whole text without line ends."""
    path = file.path.with_suffix(".ann")
    if not path.is_file():
        raise SesameError(f"{file.path}: has no {path.name} beside it; brat's files go in pairs")
    own = TaskFile(path, repairs=file.repairs)
    spans = []
    for line, annotation in read_lines(path):
        if not annotation.startswith("T"):
            continue  # relations, events, attributes and notes
        found = ENTITY.fullmatch(annotation)
        if found is None:
            raise SesameError(f"{path}:{line}: not an annotation such as T1, a type and offsets")
        if found[4]:
            own.refuse_or_drop(task, line, "the annotation has several parts")
            continue
        start, end = int(found[2]), int(found[3])
        if end <= len(text) and text[start:end].split() != found[5].split():
            own.refuse_or_drop(task, line, "the annotation's text does not stand at its offsets")
            continue
        spans.append(TextSpan(start, end, found[1], f"{path.name}:{line}"))
    return spans
