"""Tagging tasks from CoNLL files: a word a line, its tag in the last column, blank lines between.

Two columns or more, split by tabs or spaces; BIO, IOB1 and BIOES tags all become BIO. A tag that
continues nothing becomes a beginning, as conlleval reads it, and is counted; IOB1 writes names that
way, so that files in IOB1 count none.

With task.group_field, comments `# field = value` hold for the sentences after them up to the next
one or the next document, and the field `document` counts the -DOCSTART- lines.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from data_prep.errors import SesameError
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import Example, TaskFile, read_lines
from pipeline.tasks.groups import GroupFinder

PREFIXES = {"B": "B", "S": "B", "I": "I", "E": "I"}  # BIOES to BIO
NO_SENTENCE = "-DOCSTART-"

DOCUMENT = "document"  # the field that counts -DOCSTART- lines
COMMENT = re.compile(r"#\s*(\S.*?)\s*=\s*(.*)")

# The line it starts on, each line's columns, and the group it belongs to.
Sentence = tuple[int, list[list[str]], str | None]


def read_conll(file: TaskFile, task: TaskConfig) -> Iterator[Example]:
    """The sentences of one file; -DOCSTART- lines are no words."""
    groups = GroupFinder(file, task)
    sentences = list(_sentences(file, groups))
    groups.refuse_absent()
    if not file.has_labels:
        for line, rows, _ in sentences:
            words = tuple(cells[0] for cells in rows)
            yield Example(words, None, "\x1f".join(words), line)
        return
    tags_of = [[cells[-1] for cells in rows] for _, rows, _ in sentences]
    counts_repairs = not is_iob1(tags_of)
    for (line, rows, group), tags in zip(sentences, tags_of, strict=True):
        words = tuple(cells[0] for cells in rows)
        bio, repaired = to_bio(tags)
        if repaired and counts_repairs:
            file.repairs["tags"] += repaired
        own = "\x1f".join(words) if group is None else group
        yield Example(words, tuple(bio), own, line, is_grouped=group is not None)


def _sentences(file: TaskFile, groups: GroupFinder) -> Iterator[Sentence]:
    rows: list[list[str]] = []
    start, width = 1, 0
    documents = 0
    about: dict[str, str] = {}  # what comments say of the sentences that follow
    for line, text in read_lines(file.path):
        cells = re.split(r"[ \t]+", text.strip(" \t")) if text.strip() else []
        comment = COMMENT.fullmatch(text.strip()) if groups.field is not None else None
        if not cells or cells[0] == NO_SENTENCE or comment:
            if rows:
                yield start, rows, groups.find(about)
            rows = []
            if comment:
                about[comment[1]] = comment[2]
            elif cells:
                documents += 1
                about = {DOCUMENT: str(documents)}
            continue
        width = width or len(cells)
        _check(file, line, cells, width)
        if not rows:
            start = line
        rows.append(cells)
    if rows:
        yield start, rows, groups.find(about)


def _check(file: TaskFile, line: int, cells: list[str], width: int) -> None:
    least = 2 if file.has_labels else 1
    if len(cells) != width or width < least:
        raise SesameError(
            f"{file.path}:{line}: {len(cells)} columns where there should be {max(width, least)}: "
            "a word, its tag last, split by tabs or spaces"
        )
    if file.has_labels and not _is_tag(cells[-1]):
        raise SesameError(
            f"{file.path}:{line}: the last column is no tag; tags are O, B-type, I-type, "
            "E-type and S-type"
        )


def _is_tag(tag: str) -> bool:
    prefix, _, kind = tag.partition("-")
    return tag == "O" or (prefix in PREFIXES and kind != "")


def is_iob1(tags_of: Sequence[Sequence[str]]) -> bool:
    """Whether B- only ever parts two neighbours of a type, as in CoNLL-2003's own files."""
    return all(
        tag[0] in "OI" or (tag[0] == "B" and before[1:] == tag[1:])
        for tags in tags_of
        for before, tag in pairwise(["O", *tags])
    )


def to_bio(tags: Sequence[str]) -> tuple[list[str], int]:
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
