"""Read named entities from OntoNotes in CoNLL-2012's form: `*_gold_conll` files.

A named file may be one file, or a folder of them. `#begin document (bc/cctv/00/cctv_0000); part
000` and `#end document` enclose a part; blank lines separate sentences. Of a word's columns the
fourth is the word and the eleventh its names: `(PERSON*` begins one, `*)` ends it, `(GPE)` is one.
A document is a group: its parts go to the same split. With task.context=document, the sentences of
a part are each other's context.

The New Testament (`pt/`) has no names annotated, so its parts are left out and counted, as Chiu and
Nichols 2016 do.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from data_prep.errors import SesameError
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import Document, Example, TaskFile, read_lines

ENDING = "_gold_conll"
UNANNOTATED = "pt/"  # documents whose names are not annotated
WORD, NAMES, FEWEST = 3, 10, 12  # columns, from 0, and their number; predicates have further ones
BEGIN = re.compile(r"#begin document \((\S+?)\); part \d+\s*")
END = "#end document"
NAME = re.compile(r"\((\w+)\)|\((\w+)\*|\*(\))?")  # a whole name, its begin; its end, other words

Row = tuple[int, list[str]]  # line number and columns of a word


def conll2012_files(path: Path) -> list[Path]:
    """Return all files below a folder that end in `_gold_conll`, or one file."""
    return sorted(path.rglob(f"*{ENDING}")) if path.is_dir() else [path]


def read_conll2012(file: TaskFile, task: TaskConfig) -> Iterator[Example]:
    """Yield the sentences of a file or folder; every error names file and line."""
    for path in conll2012_files(file.path):
        for sentences in _parts(TaskFile(path, file.has_labels, file.repairs)):
            if file.has_labels and sentences[0].group.startswith(UNANNOTATED):
                file.repairs["parts without names"] += 1
            elif task.context == "document":
                whole = Document.of([each.texts for each in sentences])
                for number, each in enumerate(sentences):
                    yield replace(each, document=whole, sentence=number)
            else:
                yield from sentences


def _parts(file: TaskFile) -> Iterator[list[Example]]:
    """Yield the sentences of each part that has any."""
    document = ""
    sentences: list[Example] = []
    rows: list[Row] = []
    for line, text in chain(read_lines(file.path), [(0, END)]):
        if text.strip() and not text.startswith("#"):
            rows.append((line, _columns(file, line, text, document)))
            continue
        if rows:
            gold = _tags(file, rows) if file.has_labels else None
            words = tuple(cells[WORD] for _, cells in rows)
            sentences.append(Example(words, gold, document, rows[0][0]))
            rows = []
        if text.strip():
            if sentences:
                yield sentences
            begun = BEGIN.fullmatch(text)
            document, sentences = begun[1] if begun else "", []


def _columns(file: TaskFile, line: int, text: str, document: str) -> list[str]:
    cells = text.split()
    if not document or len(cells) < FEWEST:
        fault = f"{len(cells)} columns, expected {FEWEST} or more" if document else "no document"
        raise SesameError(
            f"{file.path}:{line}: {fault}; give a *{ENDING} file of CoNLL-2012, with its lines "
            "`#begin document (…); part …`"
        )
    return cells


def _tags(file: TaskFile, rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the BIO tags of a sentence."""
    tags: list[str] = []
    open_name = ""  # type of the name that has begun and not ended
    for line, cells in rows:
        found = NAME.fullmatch(cells[NAMES])
        begun = (found[1] or found[2]) if found else None
        if found is None or (begun and open_name) or (found[3] and not open_name):
            raise _refused(file, line)
        inside = f"I-{open_name}" if open_name else "O"
        tags.append(f"B-{begun}" if begun else inside)
        if found[2] or found[3]:
            open_name = found[2] or ""
    if open_name:
        raise _refused(file, rows[-1][0])
    return tuple(tags)


def _refused(file: TaskFile, line: int) -> SesameError:
    return SesameError(
        f"{file.path}:{line}: column {NAMES + 1} is not `*`, `(TYPE*`, `*)` or `(TYPE)`, or its "
        "names are nested or not closed in their sentence"
    )
