"""Read the texts of benchmark files: the development and test data that a corpus must not hold.

A file is named as `<form>:<path>`, or by its path alone if its ending tells the form:
    lines  (.txt)        every line is a text
    table  (.tsv, .csv)  every cell is a text
    json   (.json, .jsonl, .ndjson)  every string is a text: SQuAD's passages, questions, answers
    conll  (.conll, .bio, .iob)  a sentence is the words of the first column
All columns and strings are read, since a label hurts nobody and a forgotten column would.
"""

import csv
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.errors import SesameError, UsageError
from data_prep.reading.untrusted import read_text

MOST_BYTES = 1 << 30
FORMS = {
    "lines": (".txt",),
    "table": (".tsv", ".csv"),
    "json": (".json", ".jsonl", ".ndjson"),
    "conll": (".conll", ".bio", ".iob"),
}
NO_SENTENCE = "-DOCSTART-"


@dataclass(frozen=True)
class BenchmarkFile:
    """A file of texts that the corpus must not hold, and its form."""

    form: str
    path: Path

    @classmethod
    def parse(cls, entry: str) -> "BenchmarkFile":
        """Return the file that an entry of `corpus.decontaminate` names. Raises UsageError."""
        form, separator, path = entry.partition(":")
        if not separator or form not in FORMS:
            path = entry
            form = next((form for form, ends in FORMS.items() if entry.endswith(ends)), "")
        file = cls(form, Path(path).expanduser())
        if not form:
            endings = ", ".join(end for ends in FORMS.values() for end in ends)
            raise UsageError(
                f"corpus.decontaminate={entry}: neither a task nor a file of a known ending "
                f"({endings}); state its form: {', '.join(f'{name}:<file>' for name in FORMS)}"
            )
        if not file.path.is_file():
            raise UsageError(f"corpus.decontaminate={entry}: there is no such file")
        return file

    def __str__(self) -> str:
        return f"{self.form}:{self.path}"

    def texts(self) -> Iterator[str]:
        """Yield its texts. Raises SesameError, with the line, if it is not of its form."""
        return READ[self.form](self.path)


def _read_lines(path: Path) -> Iterator[str]:
    yield from read_text(path, MOST_BYTES).splitlines()


def _read_table(path: Path) -> Iterator[str]:
    lines = read_text(path, MOST_BYTES).splitlines(keepends=True)
    if path.suffix != ".csv":
        for line in lines:
            yield from line.split("\t")
        return
    csv.field_size_limit(MOST_BYTES)
    rows = csv.reader(lines)
    try:
        for row in rows:
            yield from row
    except csv.Error as error:
        raise SesameError(
            f"{path}, line {rows.line_num}: not a row of a .csv file; correct it"
        ) from error


def _read_json(path: Path) -> Iterator[str]:
    content = read_text(path, MOST_BYTES)
    # A file of one object or list may have line breaks inside; lines of objects have none.
    parts = [content] if path.suffix == ".json" else content.split("\n")
    for line, part in enumerate(parts, 1):
        try:
            yield from _strings(json.loads(part)) if part.strip() else ()
        except (ValueError, RecursionError) as error:
            at = getattr(error, "lineno", 1) + line - 1
            raise SesameError(f"{path}, line {at}: not JSON; correct it") from error


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def _read_conll(path: Path) -> Iterator[str]:
    sentence: list[str] = []
    for line in [*read_text(path, MOST_BYTES).splitlines(), ""]:
        cells = re.split(r"[ \t]+", line.strip(" \t"))
        if cells[0] in ("", NO_SENTENCE):
            yield " ".join(sentence)
            sentence = []
        elif cells[0] != "#":
            sentence.append(cells[0])


READ: dict[str, Callable[[Path], Iterator[str]]] = {
    "lines": _read_lines,
    "table": _read_table,
    "json": _read_json,
    "conll": _read_conll,
}
