"""A labelled example of a downstream task, and reading its file line by line."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from data_prep.errors import SesameError

Gold = str | float | tuple[str, ...]  # a class, a number, or a tag for each word


@dataclass(frozen=True)
class Example:
    """One labelled input: a sentence or a pair of them, or the words of a sentence to tag."""

    texts: tuple[str, ...]
    gold: Gold
    group: str  # examples of a group stay on one side of a split: a text, or its whole document
    line: int  # where the example starts in its file, for messages
    repaired: int = 0  # tags that followed no tag of their type and became beginnings


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
