"""Base class of encoders whose units are tokens: tokenizes texts and adds special tokens.

E inputs, P parts of an input (one sentence or two)
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_prep.errors import SesameError
from data_prep.text.words import TextWords
from data_prep.tokenizers import Tokenizer
from data_prep.tokenizers.alignment import Alignment, concatenate
from pipeline.encoders.inputs import (
    EncodedInputs,
    Ints,
    Words,
    WordUnits,
    fitting_words,
    kept_lengths,
    offsets_of,
    part_sizes,
    runs,
    starts_of,
    truncated_inputs,
)
from pipeline.encoders.interface import Encoder
from pipeline.models.untrusted import State


@dataclass(frozen=True)
class Template:
    """The special tokens of an input: before its sentences, between two, and after the last.

    BERT: [CLS] a [SEP] b [SEP]. RoBERTa: <s> a </s></s> b </s>.
    """

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    has_segments: bool = True  # False if the model does not number the sentences of a pair

    def size(self, sentences: int) -> int:
        """Return the number of special tokens in an input of this many sentences."""
        return len(self.before) + (sentences - 1) * len(self.between) + len(self.after)

    def part_starts(self, kept_EP: Ints) -> Ints:
        """Return the position of each part's first token in its input, for parts of these sizes."""
        steps_EP = kept_EP + len(self.between)
        return len(self.before) + np.cumsum(steps_EP, 1) - steps_EP


class TokenEncoder(Encoder):
    """An encoder whose inputs are tokens with special tokens around them."""

    joins_pairs = True

    def __init__(self, tokenizer: Tokenizer, template: Template) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        self.template = template

    @abstractmethod
    def save_with(
        self, folder: Path, head: State, stated: dict[str, Any], name: str | None
    ) -> None:
        """Write a Hugging Face folder of the encoder and a class's head.

        head: tensors by the names of the class `name`. stated: more content for config.json. name:
        None for the encoder alone.
        """

    def encode_texts(self, inputs: Sequence[tuple[str, ...]], max_length: int) -> EncodedInputs:
        """Encode one sentence or two, with special tokens as the template says."""
        self._check_length(max_length)
        encoded = self.tokenizer.encode([text for texts in inputs for text in texts])
        shape = len(inputs), len(inputs[0]) if inputs else 1
        sizes_EP = np.diff(encoded.offsets).reshape(shape)
        kept_EP = kept_lengths(sizes_EP, max_length - self.special_units(shape[1]))
        framed = self._framed(encoded.ids, encoded.offsets[:-1].reshape(shape), kept_EP)
        return replace(framed, truncated=truncated_inputs(kept_EP, sizes_EP))

    def encode_words(self, inputs: Sequence[tuple[Words, ...]], max_length: int) -> EncodedInputs:
        """Encode given words in the same layout, with the tokens of the whole text.

        A word's first token represents it. A word without a token uses a neighbour's. It becomes
        [UNK] if it stands alone, or if the tokenizer splits into words before it makes tokens.
        """
        self._check_length(max_length)
        pieces = self._pieces([words for parts in inputs for words in parts])
        ids, offsets = pieces.ids, pieces.bounds
        sizes_EP = part_sizes(inputs)
        fitting_EP, most_EP = fitting_words(
            offsets, sizes_EP, max_length - self.special_units(sizes_EP.shape[1])
        )
        firsts_EP = starts_of(sizes_EP)
        begins_EP = offsets[firsts_EP]
        kept_EP = np.minimum(offsets[firsts_EP + fitting_EP] - begins_EP, most_EP)
        framed = self._framed(ids, begins_EP, kept_EP)
        # A word's distance from the start of its part is the same in the input and in `ids`.
        words, _ = runs(firsts_EP.ravel(), fitting_EP.ravel())
        moved_EP = self.template.part_starts(kept_EP) - begins_EP
        return replace(
            framed,
            word_starts=pieces.firsts[words] + np.repeat(moved_EP, fitting_EP.ravel()),
            word_offsets=offsets_of(fitting_EP.sum(1)),
            truncated=truncated_inputs(fitting_EP, sizes_EP),
        )

    def word_units(self, sentences: Sequence[Words]) -> WordUnits:
        """Return the tokens per word."""
        pieces = self._pieces(sentences)
        return WordUnits(np.diff(pieces.bounds), pieces.stands_apart)

    def divide_words(self, words: TextWords) -> TextWords:
        """Return the tokens of the whole text; the words themselves if it has no tokens."""
        parts = self.tokenizer.parts(words.text)
        return words.divide(parts) if len(parts) else words

    def special_units(self, sentences: int) -> int:
        """Return the number of special tokens."""
        return self.template.size(sentences)

    def _framed(self, ids: NDArray[np.int32], begins_EP: Ints, kept_EP: Ints) -> EncodedInputs:
        """Return inputs with special tokens added; part p is ids[begins : begins + kept].

        An input without segments has no second sentence.
        """
        template = self.template
        offsets = offsets_of(kept_EP.sum(1) + self.special_units(kept_EP.shape[1]))
        parts_EP = template.part_starts(kept_EP)
        starts_EP = offsets[:-1, None] + parts_EP
        ends_EP = starts_EP + kept_EP
        tokens = np.empty(offsets[-1], np.int32)
        for number, id in enumerate(template.before):
            tokens[offsets[:-1] + number] = id
        for number, id in enumerate(template.between):
            tokens[ends_EP[:, :-1] + number] = id
        for number, id in enumerate(template.after):
            tokens[ends_EP[:, -1] + number] = id
        kept = kept_EP.ravel()
        tokens[runs(starts_EP.ravel(), kept)[0]] = ids[runs(begins_EP.ravel(), kept)[0]]
        is_pair = kept_EP.shape[1] > 1 and template.has_segments
        second = parts_EP[:, 1] if is_pair else np.diff(offsets)
        no_words = np.zeros(0, np.int64), np.zeros_like(offsets)
        return EncodedInputs(tokens, offsets, second, *no_words, np.zeros_like(second))

    def _pieces_of_words(self, words: Sequence[str]) -> Alignment:
        """Return the tokens of words whose tokens do not depend on context; at least one each."""
        encoded = self.tokenizer.encode_words(words)
        empty = np.diff(encoded.offsets) == 0
        ids = np.insert(encoded.ids, encoded.offsets[:-1][empty], self.tokenizer.unk)
        bounds = encoded.offsets + offsets_of(empty)
        return Alignment(ids, bounds, bounds[:-1], np.ones(len(words), np.bool_))

    def _pieces(self, sentences: Sequence[Words]) -> Alignment:
        """Return the tokens of all sentences, one after another, aligned with their words."""
        reach = self.tokenizer.reach
        if not any(map(_is_divided, sentences)) and (
            reach == "word" or (reach == "space" and all(map(_is_spaced, sentences)))
        ):
            return self._pieces_of_words([word for words in sentences for word in words])
        known: dict[tuple[str, bool, bool], Alignment] = {}  # per text; windows of a text share it
        parts = []
        for given in sentences:
            words = given if isinstance(given, TextWords) else TextWords.joined(given)
            key = words.text, words.is_spaced, words.is_divided
            if key not in known:
                known[key] = self.tokenizer.align(words.text, words.characters)
            parts.append(known[key].between(words.first, words.last))
        return concatenate(parts)

    def _check_length(self, max_length: int) -> None:
        if self.longest is not None and max_length > self.longest:
            raise SesameError(
                f"finetune.max_seq_length={max_length}: the encoder has only {self.longest} "
                "positions; set it to that or less"
            )


def _is_spaced(words: Words) -> bool:
    return not isinstance(words, TextWords) or words.is_spaced


def _is_divided(words: Words) -> bool:
    return isinstance(words, TextWords) and words.is_divided
