"""An example of a downstream task, the file it comes from, and reading that line by line."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from data_prep.errors import SesameError
from data_prep.text.cleaning import LONE_SURROGATE
from pipeline.tasks.config import TaskConfig

# A class, a number, a tag for each word, or all accepted answers to a question.
Gold = str | float | tuple[str, ...]


@dataclass(frozen=True)
class Example:
    """One input: a sentence or a pair of them, the words to tag, or a question and its passage."""

    texts: tuple[str, ...]
    gold: Gold | None  # None where the file has no labels
    group: str  # examples of a group stay on one side of a split: a text, or its whole document
    line: int  # where the example starts in its file, for messages
    id: str = ""  # of a question, by which its answer is known
    answer_start: int | None = None  # the first accepted answer's first character in the passage
    is_grouped: bool = False  # whether `group` is the value of task.group_field


@dataclass(frozen=True)
class TaskFile:
    """One of a task's files, and what its reader had to mend or drop."""

    path: Path
    has_labels: bool = True
    repairs: Counter[str] = field(default_factory=Counter)  # how often, by kind of repair

    def refuse_or_drop(self, task: TaskConfig, where: int | str, fault: str) -> None:
        """What task.faulty says of a faulty row; of unlabelled files none may be missing."""
        if not self.has_labels:
            raise SesameError(f"{self.path}:{where}: {fault}; mend it: every row gets an answer")
        if task.faulty == "refuse":
            raise SesameError(
                f"{self.path}:{where}: {fault}; mend it, or set task.faulty=drop to leave such out"
            )
        self.repairs["dropped"] += 1

    def spelt(self, text: str) -> str:
        """A text of a JSON file as UTF-8 can spell it: half a surrogate pair is U+FFFD."""
        if LONE_SURROGATE.search(text):
            self.repairs["lone surrogates"] += 1
            return LONE_SURROGATE.sub("\ufffd", text)
        return text


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of a UTF-8 file without their ends; a byte order mark is dropped."""
    encoding = "utf-8-sig"
    with open(path, "rb") as stream:
        for number, raw in enumerate(stream, start=1):
            try:
                line = raw.decode(encoding)
            except UnicodeDecodeError as error:
                raise SesameError(
                    f"{path}:{number}: byte {error.start} of the line is not UTF-8; "
                    "convert the file, for example with iconv"
                ) from None
            encoding = "utf-8"
            yield number, line.rstrip("\r\n")
