"""Streams of words for ELMo, read from example shards in both directions.

All sentences together form one endless text. A global batch reads it with `global_batch_size`
streams at equal distances: stream s of S starts at s/S of the text and continues into the part
where the next stream started. A step reads the next T words of every stream. Words, targets and
the carried LSTM state therefore depend only on position and batch size. Rank r of R takes the r-th
equal slice of the streams. A row is T words of one stream.

The backward direction reads its own text, as in bilm-tf: every sentence is reversed, the order of
sentences is the same. Its carried state then comes from the words it read last. Sentences include
their boundary marks: forward `<S> a b` predicts `a b </S>`, backward `</S> b a` predicts `b a <S>`.

S streams, T words, U distinct words, C characters per word
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data_prep.errors import SesameError
from data_prep.examples.chunks import Chunk, ChunkStore
from data_prep.tokenizers import Tokenizer
from data_prep.tokenizers.characters import Spelling, symbol_counts
from pipeline.data.cursor import Place, next_spans
from pipeline.data.device import send
from pipeline.data.loader import Step

BLOCK = 64  # windows (of T words) read from the shards at once
FORWARD, FORWARD_TARGETS, BACKWARD, BACKWARD_TARGETS = range(4)  # first dimension of words_4ST


@dataclass(frozen=True)
class WordBatch:
    """The next words of some streams, in both directions."""

    characters_UC: Tensor  # int32, AllenNLP's character ids
    forward_index_ST: Tensor  # int64, indices into U of the words to read
    backward_index_ST: Tensor  # int64, indices into U
    forward_targets_ST: Tensor  # int64, ids of the words to predict
    backward_targets_ST: Tensor  # int64, ids of the words to predict
    streams: slice  # the streams of this batch, among those of the rank
    symbols: NDArray[np.int64]  # [U] on the host: characters per word, without padding

    def to(self, device: torch.device | str) -> "WordBatch":
        """Return a copy of the batch on `device`."""
        return WordBatch(
            characters_UC=send(self.characters_UC, device),
            forward_index_ST=send(self.forward_index_ST, device),
            backward_index_ST=send(self.backward_index_ST, device),
            forward_targets_ST=send(self.forward_targets_ST, device),
            backward_targets_ST=send(self.backward_targets_ST, device),
            streams=self.streams,
            symbols=self.symbols,
        )


@dataclass(frozen=True)
class Words:
    """A vocabulary for batches: the characters of each word, and which words can be predicted."""

    spelling: Spelling
    predicted: int  # words with this id or a higher one are read, but predicted as `unknown`
    unknown: int  # id of the unknown word

    @classmethod
    def of(cls, tokenizer: Tokenizer, predicted: int, max_characters: int) -> "Words":
        """Return the words of a tokenizer; the first `predicted` of them can be predicted."""
        words = [tokenizer.piece(number) for number in range(tokenizer.size)]
        return cls(Spelling(words, max_characters), predicted, tokenizer.unk)

    def batch(self, words_4ST: NDArray[Any], streams: slice) -> WordBatch:
        """Convert ids (see `FORWARD` to `BACKWARD_TARGETS`) to a batch of these streams."""
        read_2ST = words_4ST[[FORWARD, BACKWARD]]
        distinct_U, index = np.unique(read_2ST, return_inverse=True)
        forward_index_ST, backward_index_ST = torch.from_numpy(index.reshape(read_2ST.shape))
        asked_2ST = words_4ST[[FORWARD_TARGETS, BACKWARD_TARGETS]]
        known_2ST = np.where(asked_2ST < self.predicted, asked_2ST, self.unknown)
        forward_targets_ST, backward_targets_ST = torch.from_numpy(known_2ST.astype(np.int64))
        characters_UC = self.spelling.characters(distinct_U)
        return WordBatch(
            torch.from_numpy(characters_UC.astype(np.int32)),
            forward_index_ST,
            backward_index_ST,
            forward_targets_ST,
            backward_targets_ST,
            streams,
            symbol_counts(characters_UC),
        )


class Text:
    """All rows of a split as one endless text in both directions, indexed by word number."""

    def __init__(self, store: ChunkStore) -> None:
        self._store = store
        # A row `<S> a b </S>` of four tokens has three words to read and three to predict.
        sizes = store.tokens_per_chunk - store.rows_per_chunk
        self._first_word = np.concatenate([[0], np.cumsum(sizes)])
        self.length = int(self._first_word[-1])

    def between(self, start: int, stop: int) -> NDArray[Any]:
        """Return words and targets [4, stop - start]. The text repeats after its last word."""
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
    """Return the words to read and to predict, forward and backward: [4, words]."""
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
    """The streams of one rank: an equal slice of all streams."""

    streams: int  # over all ranks
    rank: int = 0
    world: int = 1

    @property
    def mine(self) -> range:
        """The numbers of this rank's streams."""
        size = self.streams // self.world
        return range(self.rank * size, (self.rank + 1) * size)

    def micro_batches(self, size: int | None) -> list[slice]:
        """Return this rank's streams, counted from 0, in groups of at most `size` (None: all)."""
        count = len(self.mine)
        step = size or count
        return [slice(start, min(start + step, count)) for start in range(0, count, step)]


def _read(text: Text, share: StreamSlice, first: int, count: int) -> NDArray[Any]:
    """Return words `first` up to `first + count` of each of this rank's streams, [4, S, count]."""
    apart = text.length // share.streams
    return np.stack(
        [
            text.between(stream * apart + first, stream * apart + first + count)
            for stream in share.mine
        ],
        axis=1,
    )


class StreamLoader:
    """Iterates over the steps of one rank that `place` names.

    share             this rank's streams
    window            words per stream and step, T
    micro_batch_size  streams per micro-batch; None: all streams of the rank

    Raises `SesameError` if the text is too short for so many streams.
    """

    def __init__(
        self,
        store: ChunkStore,
        words: Words,
        share: StreamSlice,
        window: int,
        *,
        micro_batch_size: int | None = None,
        place: Place = Place(),  # noqa: B008 immutable
    ) -> None:
        self._text, self._words, self._share = Text(store), words, share
        self._window, self._groups = window, share.micro_batches(micro_batch_size)
        self._place = place
        self._block: tuple[int, NDArray[Any]] | None = None  # cache: block number, [4, S, words]
        if self._text.length < share.streams * window:
            raise SesameError(
                f"{store.folder}: its {self._text.length:,} words of training text are too few for "
                f"{share.streams} streams of {window} words; lower trainer.global_batch_size"
            )

    def __iter__(self) -> Iterator[Step]:
        place, streams = self._place, self._share.streams
        step, position, skipped = place.step, place.position, tuple(place.skipped)
        while place.stop is None or step < place.stop:
            # Only whole steps are ever skipped, so the next rows form one span.
            ((start, end),) = next_spans(position, streams, skipped)
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
    """Iterates over this rank's streams of held-out text, from their beginning.

    Every rank gets an equal number of batches. Over all streams at most `rows` windows are read,
    but at least one per stream. The remainder of the text's length divided by the number of streams
    is not read. Raises `SesameError` if there are fewer held-out words than streams.
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
