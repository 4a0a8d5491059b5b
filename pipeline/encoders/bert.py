"""BERT with its tokenizer as an encoder: units are tokens, with [CLS] and [SEP] added.

E inputs, P parts of an input (one sentence or two)
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor, nn

from data_prep.errors import SesameError, UsageError
from data_prep.files import atomic_write, write_atomically
from data_prep.text.words import TextWords
from data_prep.tokenizers import Tokenizer
from data_prep.tokenizers.alignment import Alignment, concatenate
from pipeline.encoders.class_heads import HAVE_POOLER, SENTENCES, DenseTransform, Transform
from pipeline.encoders.inputs import (
    EncodedInputs,
    InputBatch,
    Ints,
    Words,
    WordUnits,
    fitting_words,
    kept_lengths,
    offsets_of,
    part_sizes,
    runs,
    starts_of,
)
from pipeline.encoders.interface import Encoder
from pipeline.encoders.tokenizer_files import copy_tokenizer
from pipeline.models.bert.architectures import ARCHITECTURES
from pipeline.models.bert.huggingface import to_huggingface
from pipeline.models.bert.network import Bert, MaskedHead, initialise
from pipeline.models.untrusted import State

POOLER = ".pooler."  # part of the names of its tensors


class BertEncoder(Encoder):
    """A BERT with its tokenizer."""

    joins_pairs = True

    def __init__(
        self,
        bert: Bert,
        tokenizer: Tokenizer,
        source: Path | None = None,
        masked: MaskedHead | None = None,
        has_pooler: bool = True,
    ) -> None:
        """masked: the pretrained masked-LM head, with whose layers ModernBERT's heads begin.

        has_pooler: False if the pooler's weights are random.
        """
        super().__init__()
        self.bert = bert
        self.source = source
        self._masked = [masked]  # in a list, so that it is not a submodule
        self._has_pooler = has_pooler
        fitting = [each for each in ARCHITECTURES if not each.amiss(bert.config, "none")]
        self._architecture = fitting[0] if fitting else None
        self.model_type = fitting[0].model_type if fitting else None
        self.tokenizer = tokenizer
        self.hidden = bert.config.hidden
        self.states = bert.config.layers + 1
        self.longest = bert.config.max_positions

    def encode_texts(self, inputs: Sequence[tuple[str, ...]], max_length: int) -> EncodedInputs:
        """Encode [CLS] a [SEP], or [CLS] a [SEP] b [SEP]."""
        self._check_length(max_length)
        encoded = self.tokenizer.encode([text for texts in inputs for text in texts])
        shape = len(inputs), len(inputs[0]) if inputs else 1
        sizes_EP = np.diff(encoded.offsets).reshape(shape)
        kept_EP = kept_lengths(sizes_EP, max_length - self.special_units(shape[1]))
        framed = self._framed(encoded.ids, encoded.offsets[:-1].reshape(shape), kept_EP)
        return replace(framed, cut=int((kept_EP < sizes_EP).any(1).sum()))

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
        moved_EP = _part_starts(kept_EP) - begins_EP
        return replace(
            framed,
            word_starts=pieces.firsts[words] + np.repeat(moved_EP, fitting_EP.ravel()),
            word_offsets=offsets_of(fitting_EP.sum(1)),
            cut=int((fitting_EP < sizes_EP).any(1).sum()),
        )

    def _framed(self, ids: NDArray[np.int32], begins_EP: Ints, kept_EP: Ints) -> EncodedInputs:
        """Return inputs with [CLS] and [SEP] added; part p is ids[begins : begins + kept]."""
        offsets = offsets_of(kept_EP.sum(1) + self.special_units(kept_EP.shape[1]))
        starts_EP = offsets[:-1, None] + _part_starts(kept_EP)
        tokens = np.full(offsets[-1], self.tokenizer.sep, np.int32)
        tokens[offsets[:-1]] = self.tokenizer.cls
        kept = kept_EP.ravel()
        tokens[runs(starts_EP.ravel(), kept)[0]] = ids[runs(begins_EP.ravel(), kept)[0]]
        no_words = np.zeros(0, np.int64), np.zeros_like(offsets)
        return EncodedInputs(
            tokens, offsets, kept_EP[:, 0] + self.special_units(1), *no_words, cut=0
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
        """Return 1 for [CLS] and 1 per sentence for [SEP]."""
        return 1 + sentences

    def head_layers(self, kind: str) -> Transform | None:
        """Return BERT's pooler, RoFormer's dense layer, or ModernBERT's dense layer and norm."""
        if self.model_type == "modernbert":
            transform = DenseTransform(self.bert.config, has_norm=True)
            [masked] = self._masked
            if masked is not None:
                transform.dense.load_state_dict(masked.transform.state_dict())
                transform.norm.load_state_dict(masked.norm.state_dict())
            return transform
        if kind not in SENTENCES or self.model_type is None:
            return None
        if self.model_type == "roformer":
            return DenseTransform(self.bert.config, has_norm=False)
        if not self._has_pooler:
            initialise(self.bert.pooler, self.bert.config.init_std)
        return self.bert.pool

    def save(self, folder: Path) -> None:
        """Write a Hugging Face folder of the encoder alone."""
        self.save_with(folder, {}, {}, None)

    def save_with(
        self, folder: Path, head: State, stated: dict[str, Any], name: str | None
    ) -> None:
        """Write a Hugging Face folder of the encoder and a class's head.

        head: tensors by the names of the class `name`. stated: more content for config.json.
        """
        architecture = self._architecture
        if architecture is None or self.source is None:
            raise UsageError("no class of transformers computes what this encoder does")
        ours = {f"bert.{key}": value.cpu() for key, value in self.bert.state_dict().items()}
        config = self.bert.config
        weights = to_huggingface(ours, architecture, config) | head
        if name is not None and not name.endswith(HAVE_POOLER):
            weights = {key: value for key, value in weights.items() if POOLER not in key}
        with atomic_write(folder / "model.safetensors") as stream:
            stream.write(save(weights, {"format": "pt"}))
        base = architecture.stated(config, self.bert.vocab_size, self.tokenizer.pad)
        written = base | {"architectures": [name or architecture.bare_model]} | stated
        write_atomically(folder / "config.json", json.dumps(written, indent=2) + "\n")
        copy_tokenizer(self.source, folder, config.max_positions, config.segments)

    def recompute_activations(self) -> None:
        """Keep only the inputs of each layer for the backward pass."""
        self.bert.checkpoint_activations = True

    def blocks(self) -> list[list[nn.Parameter]]:
        """Return the embeddings, then one block per layer; the last has final norm and pooler."""
        layers = [list(layer.parameters()) for layer in self.bert.layers]
        embeddings = list(self.bert.embeddings.parameters())
        known = {id(value) for block in (embeddings, *layers) for value in block}
        layers[-1] += [value for value in self.bert.parameters() if id(value) not in known]
        return [embeddings, *layers]

    def forward(self, batch: InputBatch) -> list[Tensor]:
        """Return the hidden states x_ND of the embeddings and of every layer."""
        states: list[Tensor] = self.bert(
            batch.tokens_N, batch.positions_N, batch.segments_N, batch.lengths
        )
        return states

    def first_states(self, batch: InputBatch) -> Tensor:
        """Return the last hidden states of [CLS]; the last layer skips all other positions."""
        return self.bert.first_states(
            batch.tokens_N, batch.positions_N, batch.segments_N, batch.lengths
        )

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
        if max_length > self.bert.config.max_positions:
            raise SesameError(
                f"finetune.max_seq_length={max_length}: the encoder has only "
                f"{self.bert.config.max_positions} positions; set it to that or less"
            )


def _is_spaced(words: Words) -> bool:
    return not isinstance(words, TextWords) or words.is_spaced


def _is_divided(words: Words) -> bool:
    return isinstance(words, TextWords) and words.is_divided


def _part_starts(kept_EP: Ints) -> Ints:
    """Return the position of each part's first token: after [CLS] and the [SEP]s before it."""
    return 1 + np.cumsum(kept_EP + 1, 1) - (kept_EP + 1)
