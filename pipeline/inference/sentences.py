"""Read the sentences of .conll and .conllu files for a model that tags.

A model that was trained with its documents (task.context=document) gets them here too.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace

from pipeline.inference.lines import Line, UnfitFileError
from pipeline.tasks import conll2012, conllu
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.conll import COMMENT, NO_SENTENCE
from pipeline.tasks.examples import Document, Example
from pipeline.tasks.rows import NOT_UTF8, Lines

BEGIN_DOCUMENT, END_DOCUMENT = "#begin document (", conll2012.END  # of CoNLL-2012
LONGEST_DOCUMENT = 1 << 20  # words; a document is held in memory


def read_conll(lines: Lines, task: TaskConfig) -> Iterator[Line]:
    """Yield the sentences, with their documents if the model needs them.

    Raises UnfitFileError for a file without the documents that the model needs.
    """
    sentences = _sentences(lines, task.reader)
    if task.context == "sentence":
        return (line for line in sentences if line is not None)
    return _in_documents(sentences)


def read_conllu(lines: Lines, task: TaskConfig) -> Iterator[Line]:
    """Yield the sentences of Universal Dependencies' form, whatever form the model was trained
    on."""
    return read_conll(lines, replace(task, reader="conllu"))


def _sentences(lines: Lines, reader: str) -> Iterator[Line | None]:
    """Yield the sentences, and None where a document begins; `reader`: see task.reader."""
    words: list[str] = []
    start, fault = 0, ""  # start: first line of the sentence; 0 before it
    for number, text in itertools.chain(lines, [(0, "")]):
        if text is None:
            start, fault = start or number, NOT_UTF8
            continue
        cells = text.split()
        is_document = bool(cells) and (cells[0] == NO_SENTENCE or text.startswith(BEGIN_DOCUMENT))
        if cells and not is_document:
            word = None if _is_comment(text) else _word(text, reader)
            if word is not None:
                start = start or number
                words.append(word)
            continue
        if start:
            yield Line(start, None if fault else words, fault=fault)
            words, start, fault = [], 0, ""
        if is_document:
            yield None


def _word(text: str, reader: str) -> str | None:
    """Return the word of a row; None for a row of CoNLL-U that only groups or adds words."""
    cells = text.split()
    if reader == "conllu" and len(columns := text.split("\t")) == conllu.COLUMNS:
        return columns[conllu.WORD] if columns[0].isdigit() else None
    if reader == "conll2012" and len(cells) >= conll2012.FEWEST:
        return cells[conll2012.WORD]
    return cells[0]


def _is_comment(text: str) -> bool:
    """Return True for comments of CoNLL-U and of training files; `# O` is a word and its tag."""
    starts = ("# newdoc", "# newpar", END_DOCUMENT)
    return bool(COMMENT.fullmatch(text.strip())) or text.startswith(starts)


def _in_documents(sentences: Iterator[Line | None]) -> Iterator[Line]:
    """Give sentences the document they stand in; holds one document at a time."""
    if next(sentences, None) is not None:  # else the whole file would be one document
        raise UnfitFileError(
            "the model was trained on whole documents (task.context=document); begin each of them "
            f"with a line {NO_SENTENCE}"
        )
    for is_start, group in itertools.groupby(sentences, key=lambda line: line is None):
        if is_start:
            continue
        own = list(_bounded(line for line in group if line is not None))
        words = [_words(line) for line in own]
        document = Document.of(words)
        for number, (line, texts) in enumerate(zip(own, words, strict=True)):
            example = Example(texts, None, "", line.number, document=document, sentence=number)
            yield line if line.item is None else replace(line, item=example)


def _bounded(sentences: Iterator[Line]) -> Iterator[Line]:
    """Yield the sentences of a document; raise UnfitFileError if it is too long."""
    total = 0
    for line in sentences:
        total += len(_words(line))
        if total > LONGEST_DOCUMENT:
            raise UnfitFileError(
                f"line {line.number}: the document has more than {LONGEST_DOCUMENT:,} words; "
                f"divide it by {NO_SENTENCE} lines"
            )
        yield line


def _words(line: Line) -> tuple[str, ...]:
    return tuple(line.item) if isinstance(line.item, list) else ()
