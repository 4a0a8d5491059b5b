"""Read part-of-speech tags from Universal Dependencies' files (CoNLL-U).

A line has ten columns, separated by tabs; the second is the word, the fourth its universal tag.
Contractions (2-3) and empty nodes (5.1) are skipped: their parts are tagged. With task.group_field,
a comment such as `# newdoc id = …` names the group of the sentences up to the next one.
"""

import re
from collections.abc import Iterator

from data_prep.errors import SesameError
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import Example, TaskFile, read_lines
from pipeline.tasks.groups import GroupFinder

COLUMNS = 10
ID, WORD, TAG = 0, 1, 3  # columns, from 0
NUMBER = re.compile(r"[0-9]+(?:[-.][0-9]+)?")  # of a word, a contraction or an empty node
UNTAGGED = "_"
COMMENT = re.compile(r"#\s*(\S.*?)\s*=\s*(.*)")


def read_conllu(file: TaskFile, task: TaskConfig) -> Iterator[Example]:
    """Yield the sentences of one file; every error names file and line."""
    groups = GroupFinder(file, task)
    about: dict[str, str] = {}
    words: list[str] = []
    tags: list[str] = []
    start = 1
    for line, text in (*read_lines(file.path), (0, "")):
        if text.startswith("#"):
            if found := COMMENT.fullmatch(text.strip()):
                about[found[1]] = found[2]
            continue
        if text.strip():
            cells = text.split("\t")
            _check(file, line, cells)
            if cells[ID].isdecimal():
                start = start if words else line
                words.append(file.without_surrogates(cells[WORD]))
                tags.append(cells[TAG])
            continue
        if words:
            gold = tuple(tags) if file.has_labels else None
            example = Example(tuple(words), gold, "\x1f".join(words), start)
            yield example.in_group(groups.find(about))
        words, tags = [], []
    groups.refuse_absent()


def _check(file: TaskFile, line: int, cells: list[str]) -> None:
    if len(cells) != COLUMNS:
        raise SesameError(
            f"{file.path}:{line}: {len(cells)} columns, expected {COLUMNS}, separated by tabs; "
            "give a CoNLL-U file"
        )
    fault = ""
    if not NUMBER.fullmatch(cells[ID]):
        fault = "column 1 is not a word's number, such as 3, 3-4 or 3.1"
    elif not cells[WORD].strip():
        fault = "column 2 has no word"
    elif file.has_labels and cells[ID].isdecimal() and cells[TAG] in ("", UNTAGGED):
        fault = "the word has no universal tag in column 4"
    if fault:
        raise SesameError(f"{file.path}:{line}: {fault}; correct it")
