"""BERT with its tokenizer as an encoder: units are pieces, framed by [CLS] and [SEP]."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from data_prep.errors import SesameError
from data_prep.tokenizers import Tokenizer
from pipeline.encoders.interface import (
    EncodedInputs,
    Encoder,
    InputBatch,
    Ints,
    Words,
    fitting_words,
    kept_lengths,
    offsets_of,
)
from pipeline.models.bert import Bert


class BertEncoder(Encoder):
    """A BERT with its tokenizer."""

    joins_pairs = True

    def __init__(self, bert: Bert, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.bert = bert
        self.tokenizer = tokenizer
        self.hidden = bert.config.hidden
        self.states = bert.config.layers + 1
        self.longest = bert.config.max_positions
        self._places: Tensor | None = None  # of pieces in a narrowed table of embeddings

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
            kept = kept_lengths(lengths, max_length - self.frame(len(parts)))
            builder.add([ids[:length] for ids, length in zip(parts, kept, strict=True)])
            builder.cut += kept != lengths
        return builder.build()

    def encode_words(self, inputs: Sequence[Words], max_length: int) -> EncodedInputs:
        """[CLS] pieces of all words [SEP]; a word that leaves no piece is [UNK]."""
        return self._encode_words([(words,) for words in inputs], max_length)

    def encode_word_pairs(
        self, inputs: Sequence[tuple[Words, Words]], max_length: int
    ) -> EncodedInputs:
        """[CLS] pieces of a [SEP] pieces of b [SEP]; words of both are known by first pieces."""
        return self._encode_words(inputs, max_length)

    def _encode_words(self, inputs: Sequence[tuple[Words, ...]], max_length: int) -> EncodedInputs:
        self._check_length(max_length)
        ids, offsets = self._pieces([word for parts in inputs for words in parts for word in words])
        builder = _InputBuilder(self.tokenizer)
        first = 0
        for parts in inputs:
            starts = []  # of each part's words, in pieces from the part's beginning
            begins = []
            for words in parts:
                begins.append(offsets[first])
                starts.append(offsets[first : first + len(words) + 1] - offsets[first])
                first += len(words)
            fitting, kept = fitting_words(starts, max_length - self.frame(len(parts)))
            builder.add(
                [
                    ids[begin : begin + min(int(each[count]), most)]
                    for begin, each, count, most in zip(begins, starts, fitting, kept, strict=True)
                ],
                [each[:count] for each, count in zip(starts, fitting, strict=True)],
            )
            builder.cut += any(n < len(words) for n, words in zip(fitting, parts, strict=True))
        return builder.build()

    def word_units(self, words: Sequence[str]) -> Ints:
        """Pieces of each word."""
        return np.diff(self._pieces(words)[1])

    def frame(self, sentences: int) -> int:
        """[CLS], and a [SEP] after each sentence."""
        return 1 + sentences

    def blocks(self) -> list[list[nn.Parameter]]:
        """Embeddings, then layer by layer; the last layer's block has the final norm and pooler."""
        layers = [list(layer.parameters()) for layer in self.bert.layers]
        embeddings = list(self.bert.embeddings.parameters())
        known = {id(value) for block in (embeddings, *layers) for value in block}
        layers[-1] += [value for value in self.bert.parameters() if id(value) not in known]
        return [embeddings, *layers]

    def forward(self, batch: InputBatch) -> list[Tensor]:
        """Hidden states x_ND of the embeddings and of every layer."""
        states: list[Tensor] = self.bert(
            self._placed(batch.tokens_N), batch.positions_N, batch.segments_N, batch.lengths
        )
        return states

    def first_states(self, batch: InputBatch) -> Tensor:
        """The last hidden states of [CLS]; the last layer leaves out what others would cost."""
        return self.bert.first_states(
            self._placed(batch.tokens_N), batch.positions_N, batch.segments_N, batch.lengths
        )

    @contextmanager
    def narrowed(self, inputs: Sequence[EncodedInputs]) -> Iterator[None]:
        """Hold the embeddings of the pieces that occur, alone.

        A table of 30,522 pieces has 7.8 M of bert_mini's 11.2 M parameters, and gradients, clipping
        and AdamW go through all of them at every step. Pieces that do not occur have no gradient:
        they stay as they are, without weight decay too.
        """
        embeddings = self.bert.embeddings
        whole = embeddings.tokens
        tokens = np.unique(np.concatenate([each.tokens for each in inputs]))
        used = torch.from_numpy(tokens.astype(np.int64)).to(whole.weight.device)
        embeddings.tokens = nn.Embedding(
            len(used), self.hidden, _weight=whole.weight.detach()[used]
        )
        embeddings.tokens.requires_grad_(whole.weight.requires_grad)
        absent = torch.full_like(whole.weight[:, 0], -1, dtype=torch.int64)
        self._places = absent.index_copy(0, used, torch.arange(len(used), device=used.device))
        try:
            yield
        finally:
            with torch.no_grad():
                whole.weight[used] = embeddings.tokens.weight
            embeddings.tokens, self._places = whole, None

    def _placed(self, tokens_N: Tensor) -> Tensor:
        return tokens_N if self._places is None else self._places[tokens_N]

    def _pieces(self, words: Sequence[str]) -> tuple[NDArray[np.int32], Ints]:
        """The pieces of all words and where each word's begin; a word has at least one."""
        encoded = self.tokenizer.encode_words(words)
        empty = np.diff(encoded.offsets) == 0
        ids = np.insert(encoded.ids, encoded.offsets[:-1][empty], self.tokenizer.unk)
        return ids, encoded.offsets + offsets_of(empty)

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

    def add(self, parts: Sequence[NDArray[np.int32]], word_starts: Sequence[Ints] = ()) -> None:
        """One input; `word_starts` are counted from each part's beginning."""
        self._tokens.append(self._begin)
        length = 1
        starts = [np.zeros(0, np.int64)]
        for number, ids in enumerate(parts):
            self._tokens += [ids, self._end]
            starts += [own + length for own in word_starts[number : number + 1]]
            length += len(ids) + 1
        self._lengths.append(length)
        self._second.append(len(parts[0]) + 2)
        self._word_starts.append(np.concatenate(starts))

    def build(self) -> EncodedInputs:
        return EncodedInputs(
            np.concatenate(self._tokens),
            offsets_of(self._lengths),
            np.array(self._second, np.int64),
            np.concatenate(self._word_starts),
            offsets_of([len(starts) for starts in self._word_starts]),
            self.cut,
        )
