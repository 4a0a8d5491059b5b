"""Read Words in Context (Pilehvar and Camacho-Collados 2019): is a word used in the same sense?

A line of `train.data.txt` has five columns, separated by tabs: word, part of speech, the word's
places in both sentences (`3-0`), and the sentences, whose words are separated by spaces. The labels
T and F are the lines of `train.gold.txt`. The word is marked by quotation marks in both sentences,
as Huang et al. 2019 do; so an encoder needs no new tokens and no head of its own.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from data_prep.errors import SesameError
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import Example, TaskFile, read_lines

COLUMNS = 5
PLACES = re.compile(r"(\d{1,4})-(\d{1,4})")
DATA, GOLD = ".data.", ".gold."  # parts of the files' names
LABELS = ("T", "F")
FAULT = "needs word, part of speech, the word's places (3-0) and two sentences"


def gold_file(path: Path) -> Path:
    """Return the file of labels that belongs to a file of sentences."""
    return path.with_name(path.name.replace(DATA, GOLD))


def read_wic(file: TaskFile, task: TaskConfig) -> Iterator[Example]:
    """Yield the pairs of one file; every error names file and line."""
    labels = _labels(file) if file.has_labels else None
    rows = list(read_lines(file.path))
    if labels is not None and len(labels) != len(rows):
        raise SesameError(
            f"{file.path}: has {len(rows)} lines, but {gold_file(file.path).name} has "
            f"{len(labels)} labels; each line needs one"
        )
    for place, (line, text) in enumerate(rows):
        marked = marked_pair(text)
        if marked is None:
            file.refuse_or_drop(task, line, FAULT)
            continue
        texts = tuple(map(file.without_surrogates, marked))
        gold = None if labels is None else labels[place]
        yield Example(texts, gold, "\x1f".join(texts), line)


def marked_pair(text: str) -> tuple[str, str] | None:
    """Return the sentences of a line with the word marked; None if the line is not of the form."""
    cells = text.split("\t")
    found = PLACES.fullmatch(cells[2].strip()) if len(cells) == COLUMNS else None
    if found is None:
        return None
    first, second = _mark(cells[3], int(found[1])), _mark(cells[4], int(found[2]))
    return None if first is None or second is None else (first, second)


def _mark(sentence: str, place: int) -> str | None:
    """Return the sentence with quotation marks around a word; None if it has no such word."""
    words = sentence.split()
    if place >= len(words):
        return None
    words[place] = f'" {words[place]} "'
    return " ".join(words)


def _labels(file: TaskFile) -> list[str]:
    path = gold_file(file.path)
    if path == file.path or not path.is_file():
        raise SesameError(
            f"{file.path}: no file of labels; {DATA.strip('.')} and {GOLD.strip('.')} files belong "
            "together: train.data.txt and train.gold.txt"
        )
    labels = [text.strip() for _, text in read_lines(path)]
    for line, label in enumerate(labels, start=1):
        if label not in LABELS:
            raise SesameError(f"{path}:{line}: a label must be T or F")
    return labels
