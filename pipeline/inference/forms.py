"""Write predictions in the forms of leaderboards and annotation tools, from their JSON lines.

.tsv    GLUE: index and prediction; several labels are separated by commas
.conll  a word and its tag per line
.json   SQuAD: question id to answer
.ann    brat: entities with character offsets in the input, whose lines are the sentences
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from data_prep.errors import SesameError, UsageError
from data_prep.files import atomic_write

Answers = Iterator[dict[str, Any]]
BYTE_ORDER_MARK = "\ufeff"


def convert(predictions: Path, output: Path, source: Path) -> None:
    """Write `output` from JSON lines; its ending decides the form.

    Raises a SesameError if a line of the input had no answer, or the form cannot hold it: these
    forms have an answer for each line.
    """
    write = FORMS[output.suffix]
    with predictions.open("rb") as lines, atomic_write(output) as sink:
        for text in write(_checked(map(json.loads, lines), predictions, output, source), source):
            sink.write(text.encode())


def check_form(output: Path, kind: str, source: Path) -> None:
    """Raise UsageError if answers of a kind of task, or to this input, have no such form."""
    fitting = {
        "classify": (".jsonl", ".tsv"),
        "regress": (".jsonl", ".tsv"),
        "tag": (".jsonl", ".conll", ".ann"),
        "span": (".jsonl", ".json"),
        "choice": (".jsonl", ".tsv"),
        "multilabel": (".jsonl", ".tsv"),
    }[kind]
    if output.suffix not in fitting:
        raise UsageError(f"output={output}: answers of this model end in {' or '.join(fitting)}")
    if output.suffix == ".ann" and source.suffix.lower() != ".txt":
        raise UsageError(f"input={source}: brat's offsets count the characters of a .txt file")


def _checked(answers: Answers, predictions: Path, output: Path, source: Path) -> Answers:
    ids: set[str] = set()
    for answer in answers:
        fault = _fault(answer, output.suffix, ids)
        if fault:
            raise SesameError(
                f"{source}:{answer['line']}: {fault}, and a {output.suffix} file needs an answer "
                f"for each line; correct it, or use the answers in {predictions}"
            )
        yield answer


def _fault(answer: dict[str, Any], form: str, ids: set[str]) -> str:
    """Return why a form has no place for an answer; "" if it has. Adds to the `ids` before it."""
    if "error" in answer:
        return str(answer["error"])
    if form == ".conll" and any(word.split() != [word] for word in answer["words"]):
        return "a word is empty or has a space in it"
    if form == ".json":
        if _name(answer) in ids:
            return "its id is the id of an earlier question"
        ids.add(_name(answer))
    return ""


def _name(answer: dict[str, Any]) -> str:
    return str(answer.get("id", answer["line"]))


def _glue(answers: Answers, source: Path) -> Iterator[str]:
    yield "index\tprediction\n"
    for number, answer in enumerate(answers):
        yield f"{number}\t{_cell(answer)}\n"


def _cell(answer: dict[str, Any]) -> str:
    if "labels" in answer:
        return ",".join(answer["labels"])
    return str(answer["label"]) if "label" in answer else f"{answer['value']:.3f}"


def _conll(answers: Answers, source: Path) -> Iterator[str]:
    for number, answer in enumerate(answers):
        rows = zip(answer["words"], answer["tags"], strict=True)
        yield ("\n" if number else "") + "".join(f"{word}\t{tag}\n" for word, tag in rows)


def _squad(answers: Answers, source: Path) -> Iterator[str]:
    found = {_name(answer): answer["text"] for answer in answers}
    yield json.dumps(found, ensure_ascii=False)


def _brat(answers: Answers, source: Path) -> Iterator[str]:
    """Yield T lines; the sentences must be the lines of a .txt file.

    brat counts a byte order mark as a character; the answers' own offsets do not.
    """
    number = start = 0
    with source.open("rb") as lines:
        for answer, line in zip(answers, lines, strict=True):
            text = line.decode()
            marks = len(text) - len(text.removeprefix(BYTE_ORDER_MARK)) if start == 0 else 0
            for entity in answer["entities"]:
                number += 1
                first, last = start + marks + entity["start"], start + marks + entity["end"]
                shown = re.sub(r"\s", " ", entity["text"])  # a tab would end the cell
                yield f"T{number}\t{entity['type']} {first} {last}\t{shown}\n"
            start += len(text)


FORMS: dict[str, Callable[[Answers, Path], Iterator[str]]] = {
    ".tsv": _glue,
    ".conll": _conll,
    ".json": _squad,
    ".ann": _brat,
}
