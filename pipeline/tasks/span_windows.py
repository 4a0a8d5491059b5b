"""Encode questions with passages: overlapping windows of a passage, each after its question.

A passage is split into the smallest parts that the encoder tells apart, with known character
positions: tokens, or words for an encoder of words. So an answer may be a part of a word, such as
`5` in `5km`. The whole passage is tokenized once, and a window takes a run of its units, from the
start of a word to the end of one. The first unit of a part represents the part. The first unit of
an input means "the answer is not in this window".

N units of all windows
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from data_prep.text.words import TextWords
from pipeline.encoders import Encoder, WordUnits
from pipeline.tasks.batches import TaskData
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import Example
from pipeline.tasks.windows import Ints, cut_windows


@dataclass(frozen=True)
class Window:
    """One input: a question and successive parts of its passage."""

    example: int  # number of the example
    units: Ints  # [parts]: index into N of each part's first unit
    characters: Ints  # [parts, 2]: first character in the passage, one past the last
    words: Ints  # [parts]: number of the word that each part begins in
    origin: int  # index into N of the input's first unit


@dataclass(frozen=True)
class SpanData(TaskData):
    """A split whose inputs are windows; the windows of an example are adjacent."""

    windows: Sequence[Window]


@dataclass(frozen=True)
class Passage:
    """A text's parts, the units they take and the words they belong to."""

    parts: TextWords
    taken: WordUnits
    words: Ints  # [parts]: number of the word that each part begins in
    begins_word: NDArray[np.bool_]  # [parts]: True if the part begins where a word does

    def windows(self, room: int, stride: int) -> list[tuple[int, int]]:
        """Return windows of at most `room` units, see `cut_windows`.

        A window begins inside a word only if the word has more units than `room`.
        """
        begins = self.taken.may_begin & self.begins_word
        begins[0] = True
        sizes = np.add.reduceat(self.taken.units, np.flatnonzero(begins))
        is_long = sizes[np.cumsum(begins) - 1] > room
        return cut_windows(replace(self.taken, may_begin=begins | is_long), room, stride)


def encode_spans(
    encoder: Encoder, examples: Sequence[Example], task: TaskConfig, max_length: int
) -> SpanData:
    """Encode all windows of all examples; gold_N2 marks starts and ends (see `heads`)."""
    room = max_length - encoder.special_units(2)
    longest = min(task.max_question, room // 2)
    questions = _questions(encoder, [example.texts[0] for example in examples])
    passages = _passages(encoder, [example.texts[1] for example in examples])
    pairs: list[tuple[TextWords, TextWords]] = []
    runs: list[tuple[int, Ints, Ints]] = []
    short: list[int] = []  # the first windows of questions that were truncated
    for number, example in enumerate(examples):
        (question, units), passage = questions[example.texts[0]], passages[example.texts[1]]
        asked = max(1, int((np.cumsum(units) <= longest).sum()))
        if asked < len(question):
            short.append(len(pairs))
        left = room - min(int(units[:asked].sum()), longest)
        for first, last in passage.windows(left, task.stride):
            pairs.append((question[:asked], passage.parts[first:last]))
            runs.append((number, passage.parts.characters[first:last], passage.words[first:last]))
    inputs = encoder.encode_words(pairs, max_length)
    windows = []
    for row, (number, characters, words) in enumerate(runs):
        origin, end = int(inputs.offsets[row]), inputs.word_offsets[row + 1]
        starts = inputs.word_starts[end - len(characters) : end]  # the passage follows the question
        windows.append(Window(number, origin + starts, characters, words, origin))
    gold_N2 = np.zeros((int(inputs.offsets[-1]), 2), np.uint8)
    for window in windows:
        start, end = _gold_units(window, examples[window.example])
        gold_N2[start, 0] = gold_N2[end, 1] = 1
    is_short = np.isin(np.arange(len(pairs)), short)
    inputs = replace(inputs, truncated=inputs.truncated + is_short)
    owners = np.array([window.example for window in windows], np.int64)
    return SpanData(examples, inputs, inputs.lengths, gold_N2, windows, owners=owners)


def _questions(encoder: Encoder, texts: Sequence[str]) -> dict[str, tuple[TextWords, Ints]]:
    """Return the words of each distinct text and the units they take."""
    split = _split(texts)
    taken = encoder.word_units(list(split.values())).split(list(map(len, split.values())))
    return {
        text: (words, own.units) for (text, words), own in zip(split.items(), taken, strict=True)
    }


def _passages(encoder: Encoder, texts: Sequence[str]) -> dict[str, Passage]:
    """Divide each distinct text once, since many questions share a passage."""
    split = _split(texts)
    divided = [encoder.divide_words(words) for words in split.values()]
    taken = encoder.word_units(divided).split(list(map(len, divided)))
    passages = {}
    for (text, words), parts, own in zip(split.items(), divided, taken, strict=True):
        firsts, starts = words.characters[:, 0], parts.characters[:, 0]
        numbers = np.searchsorted(firsts, starts, side="right") - 1
        passages[text] = Passage(parts, own, numbers, firsts[numbers] == starts)
    return passages


def _split(texts: Sequence[str]) -> dict[str, TextWords]:
    """Return the words of each distinct text; a text without words gets one empty word."""
    return {text: TextWords.of(text) or TextWords.joined([""]) for text in dict.fromkeys(texts)}


def _gold_units(window: Window, example: Example) -> tuple[int, int]:
    """Return the units where the answer starts and ends; twice `origin` if it is not inside."""
    if example.answer_start is None or not isinstance(example.gold, tuple):
        return window.origin, window.origin
    begin, answer = example.answer_start, example.gold[0]
    # A part that the answer covers only partly counts as covered. The whole answer must be inside.
    starts, ends = window.characters.T
    first = int(np.searchsorted(ends, begin, side="right"))
    last = int(np.searchsorted(starts, begin + len(answer.rstrip()))) - 1
    inside = starts[0] <= begin and begin + len(answer.rstrip()) <= ends[-1]
    if not inside or first > last:
        return window.origin, window.origin
    return int(window.units[first]), int(window.units[last])
