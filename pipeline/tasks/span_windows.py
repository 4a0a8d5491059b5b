"""Encode questions with passages: overlapping windows of a passage, each after its question.

A passage is split into words with known character positions. The whole passage is tokenized once,
and a window takes a run of its units. The first unit of a word represents the word, so a span of
words maps to a run of characters; words that share a unit cannot be distinguished. The first unit
of an input means "the answer is not in this window".

N units of all windows
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from data_prep.text.words import TextWords
from pipeline.encoders import Encoder, WordUnits
from pipeline.tasks.batches import TaskData
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import Example
from pipeline.tasks.windows import Ints, cut_windows


@dataclass(frozen=True)
class Window:
    """One input: a question and successive words of its passage."""

    example: int  # number of the example
    units: Ints  # [words]: index into N of each word's first unit
    characters: Ints  # [words, 2]: first character in the passage, one past the last
    origin: int  # index into N of the input's first unit


@dataclass(frozen=True)
class SpanData(TaskData):
    """A split whose inputs are windows; the windows of an example are adjacent."""

    windows: Sequence[Window]


@dataclass(frozen=True)
class Text:
    """A text's words and the units they take."""

    words: TextWords
    taken: WordUnits


def encode_spans(
    encoder: Encoder, examples: Sequence[Example], task: TaskConfig, max_length: int
) -> SpanData:
    """Encode all windows of all examples; gold_N2 marks starts and ends (see `heads`)."""
    room = max_length - encoder.special_units(2)
    longest = min(task.max_question, room // 2)
    texts = _texts(encoder, [text for example in examples for text in example.texts])
    pairs, runs, cut = [], [], 0
    for number, example in enumerate(examples):
        question, passage = (texts[text] for text in example.texts)
        units = question.taken.units
        asked = max(1, int((np.cumsum(units) <= longest).sum()))
        cut += asked < len(question.words)
        left = room - min(int(units[:asked].sum()), longest)
        for first, last in cut_windows(passage.taken, left, task.stride):
            words = passage.words[first:last]
            pairs.append((question.words[:asked], words))
            runs.append((number, words.own_characters))
    inputs = encoder.encode_words(pairs, max_length)
    windows = []
    for row, (number, characters) in enumerate(runs):
        origin, end = int(inputs.offsets[row]), inputs.word_offsets[row + 1]
        starts = inputs.word_starts[end - len(characters) : end]  # the passage follows the question
        windows.append(Window(number, origin + starts, characters, origin))
    gold_N2 = np.zeros((int(inputs.offsets[-1]), 2), np.uint8)
    for window in windows:
        start, end = _gold_units(window, examples[window.example])
        gold_N2[start, 0] = gold_N2[end, 1] = 1
    inputs = replace(inputs, cut=inputs.cut + cut)
    return SpanData(examples, inputs, inputs.lengths, gold_N2, windows)


def _texts(encoder: Encoder, texts: Sequence[str]) -> dict[str, Text]:
    """Split each distinct text once, since many questions share a passage."""
    split = [TextWords.of(text) for text in dict.fromkeys(texts)]
    taken = encoder.word_units(split).split([len(words) for words in split])
    return {words.text: Text(words, own) for words, own in zip(split, taken, strict=True)}


def _gold_units(window: Window, example: Example) -> tuple[int, int]:
    """Return the units where the answer starts and ends; twice `origin` if it is not inside."""
    if example.answer_start is None or not isinstance(example.gold, tuple):
        return window.origin, window.origin
    begin, answer = example.answer_start, example.gold[0]
    # A word that the answer covers in part counts as covered. The whole answer must be inside.
    starts, ends = window.characters.T
    first = int(np.searchsorted(ends, begin, side="right"))
    last = int(np.searchsorted(starts, begin + len(answer.rstrip()))) - 1
    inside = starts[0] <= begin and begin + len(answer.rstrip()) <= ends[-1]
    if not inside or first > last:
        return window.origin, window.origin
    return int(window.units[first]), int(window.units[last])
