"""Examples of downstream tasks, and the files they are read from."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from data_prep.errors import SesameError
from data_prep.text.cleaning import LONE_SURROGATE
from data_prep.text.words import TextWords
from pipeline.tasks.config import TaskConfig

# Python's limits, which are no syntax errors.
UNREADABLE_JSON = "its JSON has a number of thousands of digits or is nested too deeply"

# A class or choice, a number, one tag per word, all labels, or all accepted answers to a question.
Gold = str | float | tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Document:
    """The words of a document, sentence after sentence; its sentences share one object."""

    words: TextWords
    starts: tuple[int, ...]  # first word of each sentence

    @classmethod
    def of(cls, sentences: Sequence[Sequence[str]]) -> "Document":
        """Join the words of sentences by spaces."""
        lengths = [0, *map(len, sentences)]
        words = [word for words in sentences for word in words]
        return cls(TextWords.joined(words), tuple(accumulate(lengths[:-1])))


@dataclass(frozen=True)
class Example:
    """One example: a sentence, a pair, the words to tag, or a question and its passage."""

    texts: tuple[str, ...]
    gold: Gold | None  # None if the file has no labels
    group: str  # all examples of a group go to the same split: the text itself, or its document
    line: int  # first line of the example in its file, for messages
    id: str = ""  # a question's id; its answer is written under this id
    answer_start: int | None = None  # first character of the first accepted answer in the passage
    is_grouped: bool = False  # True if `group` is the value of task.group_field
    # The text of a sentence to tag, and its context; without it, the words are joined by spaces.
    document: Document | None = None
    sentence: int = 0  # number of the sentence in its document

    def in_group(self, group: str | None) -> "Example":
        """Return the example in a group of task.group_field; unchanged if it has none (None)."""
        return self if group is None else replace(self, group=group, is_grouped=True)

    @property
    def tags(self) -> tuple[str, ...]:
        """The gold tags; an empty tag for every word of an example without labels."""
        if self.gold is None:
            return ("",) * len(self.texts)
        assert isinstance(self.gold, tuple)
        return self.gold


@dataclass(frozen=True)
class TaskFile:
    """One of a task's files, with counts of the rows its reader repaired or dropped."""

    path: Path
    has_labels: bool = True
    repairs: Counter[str] = field(default_factory=Counter)  # count by kind; updated while reading

    def refuse_or_drop(self, task: TaskConfig, where: int | str, fault: str) -> None:
        """Handle a faulty row as task.faulty says: raise a SesameError, or count it as dropped.

        Always raises for a file without labels, where every row needs a prediction.
        """
        if not self.has_labels:
            raise SesameError(
                f"{self.path}:{where}: {fault}; fix it: every row of this file needs a prediction"
            )
        if task.faulty == "refuse":
            raise SesameError(
                f"{self.path}:{where}: {fault}; fix it, or set task.faulty=drop to skip such rows"
            )
        self.repairs["dropped"] += 1

    def without_surrogates(self, text: str) -> str:
        """Replace lone surrogates, which UTF-8 cannot encode, by U+FFFD; count the repair."""
        if LONE_SURROGATE.search(text):
            self.repairs["lone surrogates"] += 1
            return LONE_SURROGATE.sub("\ufffd", text)
        return text


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number, line) of a UTF-8 file, without line ends and byte order mark.

    Raises a SesameError for another encoding, and for lines that end in a carriage return alone.
    """
    encoding = "utf-8-sig"
    with open(path, "rb") as stream:
        for number, raw in enumerate(stream, start=1):
            if number == 1 and b"\n" not in raw and b"\r" in raw.rstrip(b"\r"):
                raise SesameError(
                    f"{path}:1: the lines end in a carriage return without a line feed; convert "
                    "the file, for example with mac2unix"
                )
            try:
                line = raw.decode(encoding)
            except UnicodeDecodeError as error:
                raise SesameError(
                    f"{path}:{number}: byte {error.start} of the line is not UTF-8; "
                    "convert the file, for example with iconv"
                ) from None
            encoding = "utf-8"
            yield number, line.rstrip("\r\n")


def is_plain(cell: Any) -> bool:
    """Return True for what a table's cell may hold; JSON may have lists and objects too."""
    return not isinstance(cell, list | dict)


def cell_text(cell: Any) -> str:
    """Return the text of a table's cell; JSON's null, and NaN as pandas has it, are empty."""
    is_missing = cell is None or (isinstance(cell, float) and math.isnan(cell))
    return "" if is_missing else str(cell).strip()
