"""The contract of every encoder: texts or words in, the hidden states of every layer out.

Inputs are encoded once, any selection of them makes a flat, unpadded batch (see `inputs`), and
`forward` gives one vector per unit for every layer.

N units of a batch, E inputs, D hidden width
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from torch import Tensor, nn

from data_prep.errors import UsageError
from data_prep.text.words import TextWords
from pipeline.encoders.class_heads import Transform
from pipeline.encoders.embed import Layers, embed, refuse_no_texts
from pipeline.encoders.inputs import (
    EncodedInputs,
    InContext,
    InputBatch,
    Words,
    WordUnits,
    offsets_of,
    runs,
)
from pipeline.encoders.sentences import embed_sentences
from pipeline.encoders.vector_files import Vectors


class Encoder(nn.Module, ABC):
    """Maps inputs to the hidden states of every layer.

    The methods with a body fit encoders whose units are the words themselves.
    """

    hidden: int  # width of a hidden state
    states: int  # number of hidden states per unit: the embeddings and every layer
    longest: int | None = None  # maximum units of an input; None if there is no limit
    joins_pairs = False  # True if the two sentences of a pair see each other
    is_causal = False  # True if a unit sees only those before it, as in GPT-2
    grows = False  # True if encoding adds weights, as for static vectors
    source: Path | None = None  # folder with its tokenizer or words
    model_type: str | None = None  # of transformers' classes, see `class_heads`; None: it has none

    @abstractmethod
    def encode_texts(self, inputs: Sequence[tuple[str, ...]], max_length: int) -> EncodedInputs:
        """Encode sentences or pairs, each truncated to `max_length` units.

        Units are removed from the end of the longer sentence first.
        """

    @abstractmethod
    def encode_words(self, inputs: Sequence[tuple[Words, ...]], max_length: int) -> EncodedInputs:
        """Encode sentences given as words; words that do not fit are left out."""

    def encode_in_context(self, inputs: Sequence[InContext], max_length: int) -> EncodedInputs:
        """Encode words as `encode_words` does; only the sentences' own are words of the inputs."""
        encoded = self.encode_words([(each.words,) for each in inputs], max_length)
        counts = np.array([each.count for each in inputs], np.int64)
        if (counts == encoded.word_counts).all():
            return encoded
        firsts = encoded.word_offsets[:-1] + np.array([each.first for each in inputs], np.int64)
        starts = encoded.word_starts[runs(firsts, counts)[0]]
        return replace(encoded, word_starts=starts, word_offsets=offsets_of(counts))

    @abstractmethod
    def forward(self, batch: InputBatch) -> list[Tensor]:
        """Return the hidden states x_ND of the embeddings and of every layer."""

    def embed(
        self,
        sentences: Sequence[str | Sequence[str]],
        layers: Layers | str | None = None,
        unit: str = "word",
        pooling: str = "mean",
    ) -> list[Vectors]:
        """Return one array per sentence: its words' vectors, or with unit=sentence its own vector.

        layers: `all` by default, `last` for sentences. pooling: of sentences. See `embed` and
        `sentences`. Raises UsageError for what is no text.
        """
        refuse_no_texts(sentences)
        if unit == "word":
            return embed(self, sentences, layers or "all")
        if unit != "sentence":
            raise UsageError(f"unit={unit}: must be word or sentence")
        texts = [each if isinstance(each, str) else " ".join(each) for each in sentences]
        return list(embed_sentences(self, texts, layers or "last", pooling))

    def last_states(self, batch: InputBatch, rows_R: Tensor) -> Tensor:
        """Return the last hidden states of some units of a batch, x_RD."""
        x_RD: Tensor = self(batch)[-1][rows_R]
        return x_RD

    def word_units(self, sentences: Sequence[Words]) -> WordUnits:
        """Return the units that each word takes, for cutting windows that fit."""
        words = sum(map(len, sentences))
        return WordUnits(np.ones(words, np.int64), np.ones(words, np.bool_))

    def divide_words(self, words: TextWords) -> TextWords:
        """Return the smallest parts of words that have units of their own; here the words."""
        return words

    def special_units(self, sentences: int) -> int:
        """Return the number of special units in an input of this many sentences."""
        return 0

    def head_layers(self, kind: str) -> Transform | None:
        """Return the layers of transformers' class between hidden states and the last linear one.

        None if the class has none. Parameters of a returned module belong to the head.
        """
        return None

    def save(self, folder: Path) -> None:
        """Write the encoder to an empty folder, so that `load_encoder` reads it.

        Raises a UsageError for an encoder that has no form on disk.
        """
        raise UsageError(f"{type(self).__name__}: this encoder cannot be saved")

    @property
    def plain(self) -> "Encoder":
        """The encoder itself, without wrappers that store states or separate sentences."""
        return self

    @property
    def exact(self) -> "Encoder":
        """The encoder without stored states, which are rounded."""
        return self

    def recompute_activations(self) -> None:
        """Compute activations again in the backward pass, to save memory.

        Raises a UsageError for an encoder that cannot.
        """
        raise UsageError(
            "finetune.activation_checkpointing=true: this encoder keeps its activations; leave it "
            "out"
        )

    def blocks(self) -> list[list[nn.Parameter]]:
        """Return the parameters in blocks, embeddings first, for layer-wise learning rates."""
        return [list(self.parameters())]

    def lookup_tables(self) -> list[nn.Embedding]:
        """Return the embedding tables from which a batch only looks up rows."""
        return [module for module in self.modules() if isinstance(module, nn.Embedding)]
