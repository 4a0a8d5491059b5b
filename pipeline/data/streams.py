"""Sentences from the example shards to streams of words, read in both directions, for ELMo.

All sentences together are one endless text. A global batch reads it at `global_batch_size` places
at once, equally far apart: stream s starts s/S of the way in and goes on from there, into what the
next stream began with. A step is the next T words of every stream, so words, targets and the state
that the network carries from step to step depend on (position, batch size) alone; rank r of R takes
the r-th equal slice of the streams. A row is T words of one stream.

The backward model reads a text of its own, as bilm-tf's does: every sentence reversed, sentences in
the same order. So the words it has read last are those its carried state comes from. Sentences
enter with their frame: forward `<S> a b` predicts `a b </S>`, backward `</S> b a` predicts
`b a <S>`.

S streams, T words, U distinct words, C characters of a word
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data_prep.errors import SesameError
from data_prep.examples.chunks import Chunk, ChunkStore
from data_prep.tokenizers import Tokenizer
from data_prep.tokenizers.characters import Spelling
from pipeline.data.cursor import Span, next_spans
from pipeline.data.loader import Step

BLOCK = 64  # windows read from the shards at once
FORWARD, FORWARD_TARGETS, BACKWARD, BACKWARD_TARGETS = range(4)


@dataclass(frozen=True)
class WordBatch:
    """The next words of some streams, in both directions."""

    characters_UC: Tensor  # int32, AllenNLP's numbering
    forward_index_ST: Tensor  # int64, which of the distinct words is read
    backward_index_ST: Tensor
    forward_targets_ST: Tensor  # int64, ids of predicted words
    backward_targets_ST: Tensor
    streams: slice  # which of the rank's streams these are

    def to(self, device: torch.device | str) -> "WordBatch":
        """The same batch on `device`."""
        return WordBatch(
            characters_UC=self.characters_UC.to(device, non_blocking=True),
            forward_index_ST=self.forward_index_ST.to(device, non_blocking=True),
            backward_index_ST=self.backward_index_ST.to(device, non_blocking=True),
            forward_targets_ST=self.forward_targets_ST.to(device, non_blocking=True),
            backward_targets_ST=self.backward_targets_ST.to(device, non_blocking=True),
            streams=self.streams,
        )


@dataclass(frozen=True)
class Words:
    """What batches need to know of a vocabulary: how words are spelt and which are predicted."""

    spelling: Spelling
    predicted: int  # ids from here on are read, but predicted as the unknown word
    unknown: int

    @classmethod
    def of(cls, tokenizer: Tokenizer, predicted: int, max_characters: int) -> "Words":
        """The words of a tokenizer, of which the first are predicted."""
        words = [tokenizer.piece(number) for number in range(tokenizer.size)]
        return cls(Spelling(words, max_characters), predicted, tokenizer.unk)

    def batch(self, words_4ST: NDArray[Any], streams: slice) -> WordBatch:
        """Words and targets of both directions as a batch."""
        read_2ST = words_4ST[[FORWARD, BACKWARD]]
        distinct_U, index = np.unique(read_2ST, return_inverse=True)
        forward_index_ST, backward_index_ST = torch.from_numpy(index.reshape(read_2ST.shape))
        asked_2ST = words_4ST[[FORWARD_TARGETS, BACKWARD_TARGETS]]
        known_2ST = np.where(asked_2ST < self.predicted, asked_2ST, self.unknown)
        forward_targets_ST, backward_targets_ST = torch.from_numpy(known_2ST.astype(np.int64))
        return WordBatch(
            torch.from_numpy(self.spelling.characters(distinct_U).astype(np.int32)),
            forward_index_ST,
            backward_index_ST,
            forward_targets_ST,
            backward_targets_ST,
            streams,
        )


class Text:
    """All rows of a split as one text, in both directions, by the number of the word."""

    def __init__(self, store: ChunkStore) -> None:
        self._store = store
        # A row `<S> a b </S>` of four is three words read and three predicted.
        sizes = store.tokens_per_chunk - store.rows_per_chunk
        self._first_word = np.concatenate([[0], np.cumsum(sizes)])
        self.length = int(self._first_word[-1])

    def between(self, start: int, stop: int) -> NDArray[Any]:
        """Words and targets [4, stop - start]; after the last word comes the first again."""
        parts: list[NDArray[Any]] = []
        while start < stop:
            place = start % self.length
            number = int(np.searchsorted(self._first_word, place, "right")) - 1
            first, last = self._first_word[number : number + 2].tolist()
            end = min(place + stop - start, last)
            parts.append(_directions(self._store.read(number))[:, place - first : end - first])
            start += end - place
        return np.concatenate(parts, axis=1)


def _directions(rows: Chunk) -> NDArray[Any]:
    """What is read and predicted of these rows, forward and backward: [4, words]."""
    starts, ends = rows.example_tokens[:-1], rows.example_tokens[1:]
    lengths = ends - starts
    mirror = np.repeat(starts + ends - 1, lengths) - np.arange(len(rows.tokens))
    is_read = np.ones(len(rows.tokens), np.bool_)
    is_read[ends - 1] = False
    is_asked = np.ones(len(rows.tokens), np.bool_)
    is_asked[starts] = False
    reversed_tokens = rows.tokens[mirror]
    return np.stack(
        [
            rows.tokens[is_read],
            rows.tokens[is_asked],
            reversed_tokens[is_read],
            reversed_tokens[is_asked],
        ]
    )


@dataclass(frozen=True)
class StreamSlice:
    """The streams of one rank among all."""

    streams: int
    rank: int = 0
    world: int = 1

    @property
    def mine(self) -> range:
        """The numbers of this rank's streams."""
        size = self.streams // self.world
        return range(self.rank * size, (self.rank + 1) * size)

    def micro_batches(self, size: int | None) -> list[slice]:
        """This rank's streams, counted from 0, in groups of at most `size`."""
        count = len(self.mine)
        step = size or count
        return [slice(start, min(start + step, count)) for start in range(0, count, step)]


def _read(text: Text, share: StreamSlice, first: int, count: int) -> NDArray[Any]:
    """Words `first` to `first + count` of each of this rank's streams: [4, S, count]."""
    apart = text.length // share.streams
    return np.stack(
        [
            text.between(stream * apart + first, stream * apart + first + count)
            for stream in share.mine
        ],
        axis=1,
    )


class StreamLoader:
    """An endless iterable of steps from (`step`, `position`) on, or up to step `stop`."""

    def __init__(
        self,
        store: ChunkStore,
        words: Words,
        share: StreamSlice,
        window: int,
        *,
        micro_batch_size: int | None = None,
        step: int = 0,
        position: int = 0,
        skipped: Sequence[Span] = (),
        stop: int | None = None,
    ) -> None:
        self._text, self._words, self._share = Text(store), words, share
        self._window, self._groups = window, share.micro_batches(micro_batch_size)
        self._step, self._position, self._stop = step, position, stop
        self._skipped = tuple(skipped)
        self._block: tuple[int, NDArray[Any]] | None = None  # its number, and its words
        if self._text.length < share.streams * window:
            raise SesameError(
                f"{store.folder}: its {self._text.length:,} words of training text are too few for "
                f"{share.streams} streams of {window} words; lower trainer.global_batch_size"
            )

    def __iter__(self) -> Iterator[Step]:
        step, position, streams = self._step, self._position, self._share.streams
        while self._stop is None or step < self._stop:
            # Whole steps are skipped, so the next rows that are not stand side by side.
            ((start, end),) = next_spans(position, streams, self._skipped)
            words_4ST = self._words_of(start // streams)
            yield Step(
                step=step,
                first_row=start,
                next_row=end,
                rows=streams,
                micro_batches=[
                    self._words.batch(words_4ST[:, group], group) for group in self._groups
                ],
            )
            step, position = step + 1, end

    def _words_of(self, window: int) -> NDArray[Any]:
        number, place = divmod(window, BLOCK)
        if self._block is None or self._block[0] != number:
            size = BLOCK * self._window
            self._block = number, _read(self._text, self._share, number * size, size)
        return self._block[1][:, :, place * self._window : (place + 1) * self._window]


class HeldOutStreams:
    """Held-out text as streams of its own, from their beginning; every rank has as many batches.

    At most `rows` windows are read over all streams, at least one of each. Words that do not fill a
    stream (fewer than there are streams) are left out.
    """

    def __init__(
        self,
        store: ChunkStore,
        words: Words,
        share: StreamSlice,
        window: int,
        *,
        rows: int,
        micro_batch_size: int,
    ) -> None:
        self._text, self._words, self._share = Text(store), words, share
        self._window, self._groups = window, share.micro_batches(micro_batch_size)
        self._length = min(
            self._text.length // share.streams, max(rows // share.streams, 1) * window
        )
        if self._length == 0:
            raise SesameError(
                f"{store.folder}: its {self._text.length:,} held-out words are fewer than "
                f"trainer.global_batch_size={share.streams}; lower that, or give more text"
            )

    def __iter__(self) -> Iterator[WordBatch]:
        words_4SL = _read(self._text, self._share, 0, self._length)
        for start in range(0, self._length, self._window):
            words_4ST = words_4SL[:, :, start : start + self._window]
            for group in self._groups:
                yield self._words.batch(words_4ST[:, group], group)
