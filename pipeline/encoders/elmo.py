"""ELMo as an encoder: units are words between `<S>` and `</S>`; each sentence is read separately.

No LSTM state is carried over, so a sentence's vectors do not depend on the rest of the batch.
Shorter sentences are padded at the end that each direction reads last, after all real words. A
hidden state concatenates both directions; the lowest is the word's own vector, repeated twice.

N units of a batch, S sentences, T words of the longest sentence, U distinct words, P projection
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tokenizers
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from data_prep.tokenizers import Tokenizer
from data_prep.tokenizers.characters import (
    BEGIN_SENTENCE,
    END_SENTENCE,
    character_ids,
    symbol_counts,
)
from data_prep.tokenizers.vocabulary import COUNTS, VOCABULARY
from data_prep.tokenizers.words import split_like_elmo
from pipeline.data.device import send
from pipeline.encoders.inputs import (
    EncodedInputs,
    InputBatch,
    Ints,
    Words,
    kept_lengths,
    offsets_of,
    part_sizes,
    runs,
    truncated_inputs,
)
from pipeline.encoders.interface import Encoder
from pipeline.encoders.tokenizer_files import copy_files
from pipeline.models.elmo.allennlp import load_allennlp, write_allennlp
from pipeline.models.elmo.config import ElmoConfig
from pipeline.models.elmo.network import Elmo
from pipeline.store.encoder_files import TOKENIZER_FILES

BEGIN, END = 0, 1  # token ids of <S> and </S>


@dataclass(frozen=True)
class SpelledBatch(InputBatch):
    """A batch; its tokens number its own distinct words."""

    characters_UC: NDArray[np.int32]  # of each distinct word; on the host


@dataclass(frozen=True)
class SpelledInputs(EncodedInputs):
    """Inputs with the characters of their distinct words, which the tokens number."""

    characters: NDArray[np.uint16]  # [distinct words, C]

    def batch(self, rows: Ints) -> SpelledBatch:
        """Return the inputs `rows` with the characters of their words."""
        own = super().batch(rows)
        words_U, index_N = np.unique(own.tokens_N.numpy(), return_inverse=True)
        numbered = replace(own, tokens_N=torch.from_numpy(index_N))
        characters_UC = self.characters[words_U].astype(np.int32)
        return SpelledBatch(**vars(numbered), characters_UC=characters_UC)


class ElmoEncoder(Encoder):
    """An ELMo. It keeps no words: inputs hold the characters of theirs."""

    def __init__(self, elmo: Elmo, source: Path) -> None:
        super().__init__()
        self.elmo = elmo
        self.source = source
        self.hidden = 2 * elmo.config.projection
        self.states = elmo.config.layers + 1
        self._library = _library(source)

    def encode_texts(self, inputs: Sequence[tuple[str, ...]], max_length: int) -> EncodedInputs:
        """Encode `<S>` a `</S>`; for pairs `<S>` b `</S>` follows."""
        split = [[split_like_elmo(text, self._library) for text in texts] for texts in inputs]
        return self._encode(split, max_length)

    def encode_words(self, inputs: Sequence[tuple[Words, ...]], max_length: int) -> EncodedInputs:
        """Encode given words in the same layout; no word is split."""
        normal = [[self._normalise(words) for words in parts] for parts in inputs]
        return self._encode(normal, max_length)

    def blocks(self) -> list[list[nn.Parameter]]:
        """Return the character encoder, then one block per layer, of both directions."""
        characters = list(self.elmo.characters.parameters())
        stacks = [direction.layers for direction in self.elmo.directions]
        layers = [
            [value for layer in each for value in layer.parameters()]
            for each in zip(*stacks, strict=True)
        ]
        return [characters, *layers]

    def save(self, folder: Path) -> None:
        """Write AllenNLP's two files, and the files of its words."""
        write_allennlp(folder, self.elmo)
        assert self.source is not None, "set by the constructor"
        copy_files(self.source, folder, (*TOKENIZER_FILES, VOCABULARY, COUNTS))

    def special_units(self, sentences: int) -> int:
        """Return 2 per sentence, for `<S>` and `</S>`."""
        return 2 * sentences

    def _normalise(self, words: Words) -> list[str]:
        normaliser = self._library.normalizer if self._library else None
        return [normaliser.normalize_str(word) if normaliser else word for word in words]

    def _encode(self, inputs: list[list[list[str]]], max_length: int) -> EncodedInputs:
        sizes_EP = part_sizes(inputs)
        kept_EP = kept_lengths(sizes_EP, max_length - self.special_units(sizes_EP.shape[1]))
        numbers = {BEGIN_SENTENCE: BEGIN, END_SENTENCE: END}
        tokens: list[int] = []
        for sentences, kept in zip(inputs, kept_EP.tolist(), strict=True):
            for words, size in zip(sentences, kept, strict=True):
                own = [numbers.setdefault(word, len(numbers)) for word in words[:size]]
                tokens += [BEGIN, *own, END]
        framed_EP = kept_EP + self.special_units(1)
        ends_EP = framed_EP.cumsum(1)
        starts, _ = runs((ends_EP - framed_EP + 1).ravel(), kept_EP.ravel())
        return SpelledInputs(
            np.array(tokens, np.int32),
            offsets_of(ends_EP[:, -1]),
            framed_EP[:, 0],
            starts,
            offsets_of(kept_EP.sum(1)),
            truncated_inputs(kept_EP, sizes_EP),
            character_ids(list(numbers), self.elmo.config.max_characters),
        )

    def forward(self, batch: InputBatch) -> list[Tensor]:
        """Return the hidden states x_ND of the words themselves and of every layer."""
        assert isinstance(batch, SpelledBatch)
        device, index_N = batch.tokens_N.device, batch.tokens_N
        lengths = _sentences(batch)
        starts, width = np.cumsum(lengths) - lengths, int(lengths.max())
        steps_TS = np.arange(width)[:, None]
        last_S = starts + lengths - 1
        places_2TS = np.stack(
            [np.minimum(starts + steps_TS, last_S), np.maximum(last_S - steps_TS, starts)]
        )
        index_2TS = index_N[send(places_2TS, device)]
        characters_UC = send(batch.characters_UC, device)
        x_UP, outputs, _ = self.elmo(characters_UC, symbol_counts(batch.characters_UC), index_2TS)
        sentence_N = np.repeat(np.arange(len(lengths)), lengths)
        step_N = np.arange(len(index_N)) - starts[sentence_N]
        mirrored_N = (lengths - 1)[sentence_N] - step_N
        picks = [torch.from_numpy(s * len(lengths) + sentence_N) for s in (step_N, mirrored_N)]
        x_NP = x_UP[index_N]
        states = [torch.cat([x_NP, x_NP], 1)]
        for layers in zip(*outputs, strict=True):
            both = [y.flatten(0, 1)[p.to(device)] for y, p in zip(layers, picks, strict=True)]
            states.append(torch.cat(both, 1))
        return states


def _sentences(batch: InputBatch) -> Ints:
    """Return the units per sentence [S]; an input has one sentence or two."""
    segments = batch.segments_N.numpy(force=True)
    is_first = batch.positions_N.numpy(force=True) == 0
    is_first[1:] |= segments[1:] != segments[:-1]
    return np.diff(np.flatnonzero(np.append(is_first, True)))


def load_elmo_encoder(folder: Path) -> ElmoEncoder:
    """Load an encoder from AllenNLP's two files; a tokenizer in the folder defines the words."""
    return ElmoEncoder(load_allennlp(folder), folder)


def random_elmo_encoder(model: ElmoConfig, tokenizer: Path) -> ElmoEncoder:
    """Return an untrained encoder with the words of a tokenizer."""
    return ElmoEncoder(Elmo(model), tokenizer)


def _library(folder: Path) -> tokenizers.Tokenizer | None:
    stated = (folder / "tokenizer.json").exists()
    return Tokenizer.load(folder).library if stated else None
