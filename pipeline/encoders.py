"""Encoders: what turns text into the hidden states of every layer, for heads to stand on.

A head knows an encoder only by this interface: texts or words are encoded once (`encode_texts`,
`encode_words`), any selection of them makes a batch, and `forward` gives one vector a unit for
every layer. BERT's units are pieces, ELMo's (`pipeline.elmo_encoder`) are words.

N units of a batch, E inputs, W words, D hidden width
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from data_prep.errors import SesameError
from data_prep.tokenizers import Tokenizer
from pipeline.models.bert import Bert
from pipeline.models.config import BertConfig, ElmoConfig, ModelConfig
from pipeline.models.huggingface import load_folder

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class InputBatch:
    """Some encoded inputs, flat: what an encoder's forward takes."""

    tokens_N: Tensor
    positions_N: Tensor
    segments_N: Tensor
    lengths: Ints  # units of each input, on the host
    word_starts_W: Tensor  # index into N of each word's first unit; empty for plain texts
    word_counts: Ints  # words of each input, on the host

    def to(self, device: torch.device) -> "InputBatch":
        """The same batch on another device."""
        return InputBatch(
            self.tokens_N.to(device),
            self.positions_N.to(device),
            self.segments_N.to(device),
            self.lengths,
            self.word_starts_W.to(device),
            self.word_counts,
        )


@dataclass(frozen=True)
class EncodedInputs:
    """Many inputs as pieces, one after another; words are known by their first piece."""

    tokens: NDArray[np.int32]
    offsets: Ints  # of inputs into tokens
    second: Ints  # position in each input where the second sentence starts
    word_starts: Ints  # positions inside the input
    word_offsets: Ints  # of inputs into word_starts
    cut: int  # inputs that were too long and lost pieces or words

    @property
    def lengths(self) -> Ints:
        """Pieces of each input."""
        return np.diff(self.offsets)

    @property
    def word_counts(self) -> Ints:
        """Words of each input that fit in."""
        return np.diff(self.word_offsets)

    def batch(self, rows: Ints) -> InputBatch:
        """The chosen inputs, in the order of `rows`."""
        lengths, word_counts = self.lengths[rows], self.word_counts[rows]
        pieces, positions = runs(self.offsets[rows], lengths)
        words, _ = runs(self.word_offsets[rows], word_counts)
        starts = np.cumsum(lengths) - lengths
        return InputBatch(
            torch.from_numpy(self.tokens[pieces].astype(np.int64)),
            torch.from_numpy(positions),
            torch.from_numpy((positions >= np.repeat(self.second[rows], lengths)).astype(np.int64)),
            lengths,
            torch.from_numpy(self.word_starts[words] + np.repeat(starts, word_counts)),
            word_counts,
        )


def runs(starts: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """Indices of successive runs, and each index's position inside its run."""
    positions = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return np.repeat(starts, lengths) + positions, positions


class Encoder(nn.Module, ABC):
    """Gives the hidden states of every layer."""

    hidden: int  # width of a hidden state
    states: int  # how many there are, the embeddings' included
    longest: int | None = None  # units an input may have, where there is a limit

    @abstractmethod
    def encode_texts(self, inputs: Sequence[tuple[str, ...]], max_length: int) -> EncodedInputs:
        """Sentences and pairs of sentences, cut to `max_length` units from their longer side."""

    @abstractmethod
    def encode_words(self, inputs: Sequence[tuple[str, ...]], max_length: int) -> EncodedInputs:
        """Sentences given as words; those that do not fit into `max_length` units are left out."""

    @abstractmethod
    def forward(self, batch: InputBatch) -> list[Tensor]:
        """Hidden states x_ND of the embeddings and of every layer."""


class BertEncoder(Encoder):
    """A BERT with its tokenizer."""

    def __init__(self, bert: Bert, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.bert = bert
        self.tokenizer = tokenizer
        self.hidden = bert.config.hidden
        self.states = bert.config.layers + 1
        self.longest = bert.config.max_positions

    def encode_texts(self, inputs: Sequence[tuple[str, ...]], max_length: int) -> EncodedInputs:
        """[CLS] a [SEP], or [CLS] a [SEP] b [SEP]."""
        self._check_length(max_length)
        encoded = self.tokenizer.encode([text for texts in inputs for text in texts])
        builder = _InputBuilder(self.tokenizer)
        part = 0
        for texts in inputs:
            parts = [encoded[i] for i in range(part, part + len(texts))]
            part += len(texts)
            lengths = [len(ids) for ids in parts]
            kept = kept_lengths(lengths, max_length - len(parts) - 1)
            builder.add([ids[:length] for ids, length in zip(parts, kept, strict=True)])
            builder.cut += kept != lengths
        return builder.build()

    def encode_words(self, inputs: Sequence[tuple[str, ...]], max_length: int) -> EncodedInputs:
        """[CLS] pieces of all words [SEP]; a word that leaves no piece is [UNK]."""
        self._check_length(max_length)
        encoded = self.tokenizer.encode_words([word for words in inputs for word in words])
        ids, offsets = _at_least_one(encoded.ids, encoded.offsets, self.tokenizer.unk)
        builder = _InputBuilder(self.tokenizer)
        first = 0
        for words in inputs:
            start, room = offsets[first], max_length - 2
            starts = offsets[first : first + len(words) + 1] - start
            # The first word stays, cut if it must be, so that every input has one.
            fitting = max(1, int(np.searchsorted(starts, room, side="right")) - 1)
            builder.add([ids[start : start + min(starts[fitting], room)]], starts[:fitting] + 1)
            builder.cut += fitting < len(words)
            first += len(words)
        return builder.build()

    def forward(self, batch: InputBatch) -> list[Tensor]:
        """Hidden states x_ND of the embeddings and of every layer."""
        states: list[Tensor] = self.bert(
            batch.tokens_N, batch.positions_N, batch.segments_N, batch.lengths
        )
        return states

    def _check_length(self, max_length: int) -> None:
        if max_length > self.bert.config.max_positions:
            raise SesameError(
                f"finetune.max_seq_length={max_length}: the encoder has only "
                f"{self.bert.config.max_positions} positions; set it to that or less"
            )


class _InputBuilder:
    """Puts pieces and special pieces together, input by input."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._begin = np.array([tokenizer.cls], np.int32)
        self._end = np.array([tokenizer.sep], np.int32)
        self._tokens: list[NDArray[np.int32]] = []
        self._lengths: list[int] = []
        self._second: list[int] = []
        self._word_starts: list[Ints] = []
        self.cut = 0

    def add(self, parts: Sequence[NDArray[np.int32]], word_starts: Ints | None = None) -> None:
        self._tokens.append(self._begin)
        for ids in parts:
            self._tokens += [ids, self._end]
        self._lengths.append(1 + sum(len(ids) + 1 for ids in parts))
        self._second.append(len(parts[0]) + 2)
        self._word_starts.append(np.zeros(0, np.int64) if word_starts is None else word_starts)

    def build(self) -> EncodedInputs:
        return EncodedInputs(
            np.concatenate(self._tokens),
            offsets_of(self._lengths),
            np.array(self._second, np.int64),
            np.concatenate(self._word_starts),
            offsets_of([len(starts) for starts in self._word_starts]),
            self.cut,
        )


def offsets_of(lengths: Sequence[int]) -> Ints:
    """Where each of some runs starts, and where the last ends."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _at_least_one(
    ids: NDArray[np.int32], offsets: Ints, unknown: int
) -> tuple[NDArray[np.int32], Ints]:
    """Give every word without a piece the unknown piece, so that it has a first one."""
    empty = np.diff(offsets) == 0
    ids = np.insert(ids, offsets[:-1][empty], unknown)
    return ids, offsets + np.concatenate([[0], np.cumsum(empty)])


def kept_lengths(lengths: Sequence[int], room: int) -> list[int]:
    """How much of each part is kept where not all fit: pieces go from the longer part first."""
    if len(lengths) == 1:
        return [min(lengths[0], room)]
    a, b = lengths
    b = min(b, max(room - a, room // 2))
    return [min(a, room - b), b]


def load_encoder(folder: Path) -> Encoder:
    """The encoder in a Hugging Face BERT folder, or in one with an ELMo's options and weights."""
    from pipeline.elmo_encoder import load_elmo_encoder
    from pipeline.models.allennlp import find_pair

    if find_pair(folder) is not None:
        return load_elmo_encoder(folder)
    return BertEncoder(load_folder(folder), Tokenizer.load(folder))


def random_encoder(model: ModelConfig, tokenizer: Path, seed: int) -> Encoder:
    """An untrained encoder of the given shape: the floor that pretraining is measured against."""
    from pipeline.elmo_encoder import random_elmo_encoder

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if isinstance(model, ElmoConfig):
            return random_elmo_encoder(model, tokenizer)
        assert isinstance(model, BertConfig)
        vocabulary = Tokenizer.load(tokenizer)
        return BertEncoder(Bert(model, vocabulary.size), vocabulary)
