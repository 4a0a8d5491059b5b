"""Tags from marked spans of texts: JSON lines, and what brat's files share with them.

A line is an object such as
    {"text": "Anna lives in Lund.", "spans": [{"start": 0, "end": 4, "label": "PER"}]}
Ends are excluded. A text is split into words (task.word_split), and its spans become BIO tags.

User names, tags and addresses contain names that are not marked (`@annaek`, `#lund`). If they were
split, a model would learn that such names are O, so task.word_split=addresses keeps them whole.

A span that begins or ends inside a word, runs past the end, overlaps a longer one or has no word is
a fault (task.faulty): an error, or a counted repair. Repairs widen it to whole words, cut it, or
leave it out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from data_prep.errors import SesameError
from data_prep.text.words import TextWords
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import Document, Example, TaskFile
from pipeline.tasks.groups import GroupFinder
from pipeline.tasks.table import json_rows

MOST_CHARACTERS = 10**9  # of a text


@dataclass(frozen=True)
class TextSpan:
    """A labelled run of characters, and its place in the file for messages."""

    start: int
    end: int  # excluded
    label: str
    where: int | str


def read_spans(file: TaskFile, task: TaskConfig) -> Iterator[Example]:
    """Yield one example per line; every error names file and line."""
    if file.path.suffix != ".jsonl":
        raise SesameError(f"{file.path}: must end in .jsonl, with one JSON object per line")
    groups = GroupFinder(file, task)
    for line, row in json_rows(file.path):
        group = groups.find(row)
        text = row.get("text")
        own = file.without_surrogates(text) if isinstance(text, str) else ""
        words = TextWords.of(own, task.text_rule)
        if not words:
            file.refuse_or_drop(task, line, "its key text has no words")
            continue
        gold = None
        if file.has_labels:
            gold = tag_words(file, task, words, _spans(file, line, row))
        example = Example(words.every, gold, words.text, line, document=Document(words, (0,)))
        yield example.in_group(group)
    groups.refuse_absent()


def _spans(file: TaskFile, line: int, row: dict[str, Any]) -> list[TextSpan]:
    given = row.get("spans")
    spans = []
    for number, span in enumerate(given if isinstance(given, list) else [None]):
        match span:
            case {"start": int(start), "end": int(end), "label": str(label)} if (
                label and 0 <= start <= end < MOST_CHARACTERS
            ):
                own = file.without_surrogates(label)
                spans.append(TextSpan(start, end, own, f"{line}, span {number}"))
            case _:
                raise SesameError(
                    f"{file.path}:{line}: its key spans must have a list of objects with start, "
                    "end and label, whose end is not before its start"
                )
    return spans


def tag_words(
    file: TaskFile, task: TaskConfig, words: TextWords, spans: Sequence[TextSpan]
) -> tuple[str, ...]:
    """Return the BIO tags of `words`; spans count characters of the words' whole text."""
    starts, ends = words.own_characters.T
    tags = ["O"] * len(words)
    for span in sorted(spans, key=lambda each: (each.start - each.end, each.start)):
        first = int(np.searchsorted(ends, span.start, side="right"))
        last = int(np.searchsorted(starts, span.end))
        if first >= last or span.start >= span.end:
            _repair(file, task, span, "has no word", "left out")
            continue
        if any(tag != "O" for tag in tags[first:last]):
            _repair(file, task, span, "overlaps another one", "left out")
            continue
        inside = words.text[span.start : span.end]
        begin = span.end - len(inside.lstrip())
        end = span.start + len(inside.rstrip())
        if span.end > len(words.text) or end > ends[-1]:
            _repair(file, task, span, "runs past the end of its text or line", "cut")
        elif (starts[first], ends[last - 1]) != (begin, end):
            fault = "begins or ends inside a word (see task.word_split)"
            _repair(file, task, span, fault, "widened")
        tags[first:last] = [f"B-{span.label}", *[f"I-{span.label}"] * (last - first - 1)]
    return tuple(tags)


def _repair(file: TaskFile, task: TaskConfig, span: TextSpan, fault: str, repair: str) -> None:
    if task.faulty == "refuse":
        raise SesameError(
            f"{file.path}:{span.where}: the span of characters {span.start} to {span.end} {fault}; "
            f"correct it, or set task.faulty=drop, and it is {repair} and counted"
        )
    file.repairs[f"spans {repair}"] += 1
