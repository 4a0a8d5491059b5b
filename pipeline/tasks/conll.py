"""Tagging tasks from CoNLL files: a word a line, its tag in the last column, blank lines between.

Two columns or more, split by tabs or spaces; BIO, IOB1 and BIOES tags all become BIO.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from data_prep.errors import SesameError
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import Example, read_lines

PREFIXES = {"B": "B", "S": "B", "I": "I", "E": "I"}  # BIOES to BIO


def read_conll(path: Path, task: TaskConfig) -> Iterator[Example]:
    """The sentences of one file; -DOCSTART- lines are no words."""
    words: list[str] = []
    tags: list[str] = []
    start, width = 1, 0
    for line, text in read_lines(path):
        cells = re.split(r"[ \t]+", text.strip(" \t")) if text.strip() else []
        if not cells or cells[0] == "-DOCSTART-":
            if words:
                yield _example(words, tags, start)
            words, tags = [], []
            continue
        width = width or len(cells)
        if len(cells) != width or width < 2:
            raise SesameError(
                f"{path}:{line}: {len(cells)} columns where there should be {max(width, 2)}: "
                "a word, its tag last, split by tabs or spaces"
            )
        if not _is_tag(cells[-1]):
            raise SesameError(
                f"{path}:{line}: the last column is no tag; tags are O, B-type, I-type, "
                "E-type and S-type"
            )
        if not words:
            start = line
        words.append(cells[0])
        tags.append(cells[-1])
    if words:
        yield _example(words, tags, start)


def _example(words: list[str], tags: list[str], line: int) -> Example:
    tags, repaired = to_bio(tags)
    return Example(tuple(words), tuple(tags), "\x1f".join(words), line, repaired)


def _is_tag(tag: str) -> bool:
    prefix, _, kind = tag.partition("-")
    return tag == "O" or (prefix in PREFIXES and kind != "")


def to_bio(tags: list[str]) -> tuple[list[str], int]:
    """Tags in BIO, and how many continued nothing and became beginnings, as conlleval reads them.

    In IOB1 files such tags are the rule: only a name right after another of its type has a B.
    """
    bio: list[str] = []
    repaired = 0
    going_on: str | None = None  # the type that the next tag may continue
    for tag in tags:
        prefix, _, kind = tag.partition("-")
        if tag == "O":
            bio.append(tag)
            going_on = None
            continue
        continues = PREFIXES[prefix] == "I"
        if continues and kind != going_on:
            repaired += 1
            continues = False
        bio.append(f"{'I' if continues else 'B'}-{kind}")
        going_on = kind if prefix in ("B", "I") else None
    return bio, repaired
