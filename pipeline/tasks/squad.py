"""Read questions about passages from SQuAD's JSON, versions 1.1 and 2.0.

Messages give a place in the file as a path: data[3].paragraphs[0].qas[2]. An answer that is not at
its stated offset is moved to the nearest occurrence in the passage and counted as a repair. An
answer that occurs nowhere is a fault (task.faulty).
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from data_prep.errors import SesameError
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import UNREADABLE_JSON, Example, TaskFile
from pipeline.tasks.groups import GroupFinder


@dataclass(frozen=True)
class Entry:
    """A JSON value of the file and its path there."""

    file: TaskFile
    value: Any
    place: str

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the object; empty if the value is not an object."""
        return self.value if isinstance(self.value, dict) else {}

    def each(self, key: str) -> Iterator["Entry"]:
        """Yield the items of the list `key`; raise a SesameError if there is no list."""
        place = f"{self.place}.{key}".lstrip(".")
        for number, item in enumerate(self._get(key, list)):
            yield Entry(self.file, item, f"{place}[{number}]")

    def text(self, key: str) -> str:
        """Return the string `key` without changing its length; SesameError if there is none."""
        return self.file.without_surrogates(str(self._get(key, str)))

    def number(self, key: str) -> int:
        """Return the whole number `key`; SesameError if there is none."""
        return int(self._get(key, int))

    def has(self, key: str) -> bool:
        """Return True if `key` has a non-empty value."""
        return isinstance(self.value, dict) and bool(self.value.get(key))

    def _get(self, key: str, kind: type) -> Any:
        found = self.value.get(key) if isinstance(self.value, dict) else None
        if not isinstance(found, kind):
            names = {list: "list", str: "string", int: "whole number"}
            raise SesameError(
                f"{self.file.path}:{self.place or 'top'}: no {names[kind]} {key}; "
                "the file must have SQuAD's format"
            )
        return found


def read_squad(file: TaskFile, task: TaskConfig) -> Iterator[Example]:
    """Yield the questions of one file with their passages.

    Questions of one article form a group. With task.group_field, questions with the same value of
    this field do; it may be a field of the question, its paragraph or its article.
    """
    number = 0
    ids: set[str] = set()  # answers are written by id
    groups = GroupFinder(file, task)
    for article in _load(file).each("data"):
        for paragraph in article.each("paragraphs"):
            passage = paragraph.text("context")
            for question in paragraph.each("qas"):
                number += 1
                group = groups.find(question.fields, paragraph.fields, article.fields)
                example = _example(file, task, question, passage, article.place, number)
                if example is not None:
                    if example.id in ids:
                        raise SesameError(
                            f"{file.path}:{question.place}: another question has the same id"
                        )
                    ids.add(example.id)
                    yield example.in_group(group)
    groups.refuse_absent()


def _load(file: TaskFile) -> Entry:
    try:
        return Entry(file, json.loads(file.path.read_bytes()), "")
    except json.JSONDecodeError as error:
        raise SesameError(
            f"{file.path}:{error.lineno}: not JSON at character {error.colno} ({error.msg})"
        ) from None
    except UnicodeDecodeError as error:
        raise SesameError(
            f"{file.path}: byte {error.start} is not UTF-8; convert it, for example with iconv"
        ) from None
    except (ValueError, RecursionError) as error:
        raise SesameError(f"{file.path}: {UNREADABLE_JSON}") from error


def _example(
    file: TaskFile, task: TaskConfig, question: Entry, passage: str, group: str, number: int
) -> Example | None:
    """Return one question; None if it is faulty and dropped."""
    text, name = question.text("question").strip(), question.text("id")
    fault = "the question is empty" if not text else ""
    fault = fault or ("" if passage.strip() else "its passage is empty")
    answers: list[tuple[str, int]] = []
    if file.has_labels and not fault:
        found = [_place(file, answer, passage) for answer in question.each("answers")]
        answers = [answer for answer in found if answer is not None]
        if len(answers) < len(found):
            fault = "an answer does not occur in its passage"
        elif not answers and not task.unanswerable:
            fault = "no answer; SQuAD 2.0's files need task.unanswerable=true"
    if fault:
        file.refuse_or_drop(task, question.place, fault)
        return None
    if not file.has_labels:
        return Example((text, passage), None, group, number, name)
    gold = tuple(answer for answer, _ in answers)
    start = answers[0][1] if answers else None
    return Example((text, passage), gold, group, number, name, start)


def _place(file: TaskFile, answer: Entry, passage: str) -> tuple[str, int] | None:
    """Return an answer and its first character in the passage; None if it does not occur."""
    text, stated = answer.text("text"), answer.number("answer_start")
    if text.strip() and stated >= 0 and passage.startswith(text, stated):
        return text, stated
    places = [match.start() for match in re.finditer(re.escape(text), passage)]
    if not text.strip() or not places:
        return None
    file.repairs["moved answers"] += 1
    return text, min(places, key=lambda place: abs(place - stated))
