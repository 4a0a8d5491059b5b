"""Read tagging tasks from CoNLL files: one word per line, blank lines between sentences.

A line has two or more columns, separated by tabs or spaces. The last column is the tag. BIO, IOB1
and BIOES tags are all converted to BIO. An I- tag that continues no entity becomes B-, as conlleval
reads it, and is counted as a repair. IOB1 files are detected and not counted, since IOB1 begins
names with I-.

A comment `# field = value` has spaces around its `=`, and no tag at its end. With task.group_field
it applies to the following sentences, up to the next such comment or the next document. The field
`document` counts the -DOCSTART- lines.

With task.context=document, the sentences after a -DOCSTART- line are each other's context.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from data_prep.errors import SesameError
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import Document, Example, TaskFile, read_lines
from pipeline.tasks.groups import GroupFinder

PREFIXES = {"B": "B", "S": "B", "I": "I", "E": "I"}  # BIOES to BIO
NO_SENTENCE = "-DOCSTART-"

DOCUMENT = "document"  # the field that counts -DOCSTART- lines
COMMENT = re.compile(r"#\s+(\S.*?)\s+=\s+(.*)")


@dataclass(frozen=True)
class Sentence:
    """The lines of one sentence."""

    line: int  # number of the first
    rows: list[list[str]]  # the columns of each line
    group: str | None
    document: int  # number of -DOCSTART- lines before it

    @property
    def words(self) -> tuple[str, ...]:
        """The first column."""
        return tuple(cells[0] for cells in self.rows)


def read_conll(file: TaskFile, task: TaskConfig) -> Iterator[Example]:
    """Yield the sentences of one file; -DOCSTART- lines are skipped."""
    groups = GroupFinder(file, task)
    sentences = list(_sentences(file, groups))
    groups.refuse_absent()
    tags: Sequence[tuple[str, ...] | None] = [None] * len(sentences)
    if file.has_labels:
        tags = _tags(file, sentences)
    contexts: Iterator[tuple[Document | None, int]] = itertools.repeat((None, 0), len(sentences))
    if task.context == "document":
        contexts = _contexts(file, sentences)
    for each, gold, (document, number) in zip(sentences, tags, contexts, strict=True):
        own = "\x1f".join(each.words)
        example = Example(each.words, gold, own, each.line, document=document, sentence=number)
        yield example.in_group(each.group)


def _tags(file: TaskFile, sentences: Sequence[Sentence]) -> list[tuple[str, ...]]:
    """Return the BIO tags of each sentence; repairs are counted."""
    tags_of = [[cells[-1] for cells in each.rows] for each in sentences]
    counts_repairs = not is_iob1(tags_of)
    made = []
    for tags in tags_of:
        bio, repaired = to_bio(tags)
        if repaired and counts_repairs:
            file.repairs["tags"] += repaired
        made.append(tuple(bio))
    return made


def _contexts(
    file: TaskFile, sentences: Sequence[Sentence]
) -> Iterator[tuple[Document | None, int]]:
    """Yield the document of each sentence and its number there."""
    if all(each.document == 0 for each in sentences):
        raise SesameError(
            f"{file.path}: task.context=document: has no {NO_SENTENCE} lines; add them, or train "
            "with task.context=sentence"
        )
    for _, group in itertools.groupby(sentences, key=lambda each: each.document):
        own = [each.words for each in group]
        document = Document.of(own)
        yield from ((document, number) for number in range(len(own)))


def _sentences(file: TaskFile, groups: GroupFinder) -> Iterator[Sentence]:
    rows: list[list[str]] = []
    start, width = 1, 0
    documents = 0
    about: dict[str, str] = {}  # fields set by comments for the following sentences
    for line, text in read_lines(file.path):
        cells = re.split(r"[ \t]+", text.strip(" \t")) if text.strip() else []
        comment = COMMENT.fullmatch(text.strip())
        if comment and _is_tag(cells[-1]):
            comment = None
        if not cells or cells[0] == NO_SENTENCE or comment:
            if rows:
                yield Sentence(start, rows, groups.find(about), documents)
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
        yield Sentence(start, rows, groups.find(about), documents)


def _check(file: TaskFile, line: int, cells: list[str], width: int) -> None:
    least = 2 if file.has_labels else 1
    if len(cells) != width or width < least:
        raise SesameError(
            f"{file.path}:{line}: {len(cells)} columns, expected {max(width, least)}: "
            "the word first and its tag last, separated by tabs or spaces"
        )
    if file.has_labels and not _is_tag(cells[-1]):
        raise SesameError(
            f"{file.path}:{line}: the last column is not a tag; tags are O, B-type, I-type, "
            "E-type and S-type"
        )


def _is_tag(tag: str) -> bool:
    prefix, _, kind = tag.partition("-")
    return tag == "O" or (prefix in PREFIXES and kind != "")


def is_iob1(tags_of: Sequence[Sequence[str]]) -> bool:
    """Return True if B- only separates adjacent entities of one type, as in CoNLL-2003's files."""
    return all(
        tag[0] in "OI" or (tag[0] == "B" and before[1:] == tag[1:])
        for tags in tags_of
        for before, tag in pairwise(["O", *tags])
    )


def to_bio(tags: Sequence[str]) -> tuple[list[str], int]:
    """Return the tags in BIO, and how many I- tags continued no entity and became B-.

    In IOB1 files such tags are regular: only an entity right after another of its type has B-.
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
