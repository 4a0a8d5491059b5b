"""Encode sentences to tag: long ones in windows, short ones with their neighbours as context.

With task.context=document an input is filled up with the words around the sentence, of the same
document, as Devlin et al. 2019, section 5.3, do for CoNLL-2003. Only the sentence's own words are
tagged.
"""

from collections.abc import Sequence

import numpy as np

from data_prep.text.words import TextWords
from pipeline.encoders import EncodedInputs, Encoder, InContext, WordUnits, offsets_of
from pipeline.tasks.examples import Example
from pipeline.tasks.windows import Ints, cut_windows


def encode_sentences(
    encoder: Encoder, examples: Sequence[Example], max_length: int
) -> EncodedInputs:
    """Encode the words of sentences; a long sentence becomes several successive inputs.

    The word starts of an input are those of its tagged words.
    """
    texts = {_key(example): _words(example) for example in examples}
    taken = encoder.word_units(list(texts.values())).split(list(map(len, texts.values())))
    units = dict(zip(texts, taken, strict=True))
    room = max_length - encoder.special_units(1)
    made = [
        own
        for example in examples
        for own in _inputs(example, texts[_key(example)], units[_key(example)], room)
    ]
    return encoder.encode_in_context(made, max_length)


def _key(example: Example) -> object:
    """Return what determines the text: the document, or the sentence's words."""
    return example.texts if example.document is None else id(example.document)


def _words(example: Example) -> TextWords:
    if example.document is not None:
        return example.document.words
    return TextWords.joined(example.texts)


def _inputs(example: Example, words: TextWords, taken: WordUnits, room: int) -> list[InContext]:
    begin = 0 if example.document is None else example.document.starts[example.sentence]
    end = begin + len(example.texts)
    may_begin = taken.may_begin[begin:end].copy()
    may_begin[:1] = True
    windows = cut_windows(WordUnits(taken.units[begin:end], may_begin), room)
    if len(windows) > 1:  # no room for context
        return [InContext(words[begin + a : begin + b], 0, b - a) for a, b in windows]
    first, last = _widened(begin, end, offsets_of(taken.units), room)
    while first < begin and not taken.may_begin[first]:
        first += 1
    return [InContext(words[first:last], begin - first, end - begin)]


def _widened(begin: int, end: int, offsets: Ints, room: int) -> tuple[int, int]:
    """Return the words around [begin, end) that fit into `room`, as many units on both sides.

    A side without enough words leaves its room to the other. `offsets`: of the words' units.
    """
    left = max(room - int(offsets[end] - offsets[begin]), 0)
    before, after = int(offsets[begin]), int(offsets[-1] - offsets[end])
    before = min(before, max(left // 2, left - after))
    after = min(after, left - before)
    first = int(np.searchsorted(offsets, offsets[begin] - before))
    return first, int(np.searchsorted(offsets, offsets[end] + after, side="right")) - 1
