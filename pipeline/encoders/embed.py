"""Contextual word vectors from any encoder: every layer, the last layer, or a mix of all layers.

A word has one vector per layer: for tokenized words, the vector of the first token. It does not
depend on the rest of the batch. From Python:
    encoder = load_encoder("my_elmo")
    for vectors in encoder.embed([["Stocks", "rose"], ["She", "rose"]]):
        ...  # [words, layers, width] of a sentence, or [words, width] of a mix or the last layer
To a file, in bounded memory: `sesame embed encoder=my_elmo input=sentences.txt`

N words, L layers, D width of a vector
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from data_prep.errors import SesameError, UsageError
from data_prep.files import is_text
from data_prep.text.words import TextWords
from pipeline.encoders.evaluation import for_each_batch
from pipeline.encoders.inputs import EncodedInputs, InputBatch, Words, offsets_of
from pipeline.encoders.vector_files import Batch, Ints, Vectors, write_vectors

CHOICES = ("all", "last", "mix")
ALIASES = {"top": "last"}  # the word of AllenNLP's `elmo` command
CHUNK_CHARACTERS = 1 << 22  # of a file, encoded together: enough to sort lines by length
LONGEST = 1 << 20  # words; an encoder with fewer positions says so itself


class GivesStates(Protocol):
    """The part of an encoder that `embed` uses; `interface.Encoder` documents each member."""

    hidden: int
    states: int
    longest: int | None
    is_causal: bool

    def encode_words(
        self, inputs: Sequence[tuple[Words, ...]], max_length: int
    ) -> EncodedInputs: ...

    def encode_texts(self, inputs: Sequence[tuple[str, ...]], max_length: int) -> EncodedInputs: ...

    def last_states(self, batch: InputBatch, rows_R: Tensor) -> Tensor: ...

    def __call__(self, batch: InputBatch) -> list[Tensor]: ...

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def eval(self) -> object: ...


@dataclass(frozen=True)
class Layers:
    """The vectors to return: `all`, `last`, or gamma * sum of weight * layer (`mix`)."""

    choice: str = "all"
    weights: tuple[float, ...] = ()  # of a mix, the embeddings' first; when empty, equal weights
    gamma: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "choice", ALIASES.get(self.choice, self.choice))
        if self.choice not in CHOICES:
            raise UsageError(f"layers={self.choice}: must be one of {', '.join(CHOICES)}")

    def shape(self, encoder: GivesStates) -> tuple[int, ...]:
        """Return the shape of one word's vectors: [L, D] or [D]."""
        if self.weights and len(self.weights) != encoder.states:
            raise UsageError(
                f"weights: {len(self.weights)} are given, but the encoder has {encoder.states} "
                "layers, its embeddings included"
            )
        return (encoder.states, encoder.hidden) if self.choice == "all" else (encoder.hidden,)

    def of(self, states: list[Tensor]) -> Tensor:
        """Return the vectors [N, L, D] or [N, D]."""
        if self.choice == "last":
            return states[-1]
        layers_NLD = torch.stack(states, 1)
        if self.choice == "all":
            return layers_NLD
        weights = self.weights or (1 / len(states),) * len(states)
        return self.gamma * torch.einsum("l,nld->nd", layers_NLD.new_tensor(weights), layers_NLD)


def embed(
    encoder: GivesStates, sentences: Sequence[str | Sequence[str]], layers: Layers | str = "all"
) -> list[Vectors]:
    """Return the word vectors of each sentence, one array per sentence.

    A sentence is a list of words, or a string that `TextWords` splits into words and punctuation.
    The words of a string get the tokens of the whole string. A sentence without words gets an
    array without rows. Puts the encoder into evaluation mode.
    """
    layers = Layers(layers) if isinstance(layers, str) else layers
    split = [TextWords.of(each) if isinstance(each, str) else each for each in sentences]
    shape = layers.shape(encoder)
    if not any(map(len, split)):
        return [np.zeros((0, *shape), np.float32) for _ in split]
    inputs, offsets = _encode(encoder, split)
    vectors = np.empty((offsets[-1], *shape), np.float32)
    for words, values in _vectors(encoder, inputs, offsets, layers):
        vectors[words] = values
    return np.split(vectors, offsets[1:-1])


def refuse_no_texts(sentences: Sequence[str | Sequence[str]]) -> None:
    """Raise UsageError for one sentence instead of a list, and for what is no valid text."""
    if isinstance(sentences, str):
        raise UsageError("embed: give a list of sentences; for one sentence, [sentence]")
    for number, each in enumerate(sentences):
        words = [each] if isinstance(each, str) else each
        is_list = isinstance(words, Sequence)
        if not is_list or not all(isinstance(word, str) and is_text(word) for word in words):
            raise UsageError(
                f"embed: sentence {number} (counted from 0) is not a valid text or list of words"
            )


def embed_file(encoder: GivesStates, sentences: Path, out: Path, layers: Layers) -> int:
    """Write the word vectors of a file of sentences; return the number of words N.

    The file has one sentence per line, with words separated by spaces. The output holds the vectors
    [N, L, D] or [N, D] and `offsets`: sentence s has vectors[offsets[s] : offsets[s + 1]]. See
    `vector_files` for the form.
    """
    counts = np.fromiter((len(line.split()) for line in lines_of(sentences)), np.int64)
    offsets = offsets_of(counts)

    def batches() -> Iterator[Batch]:
        for first, lines in chunks_of(sentences):
            split = [line.split() for line in lines]
            if any(split):
                inputs, own = _encode(encoder, split, first)
                for words, values in _vectors(encoder, inputs, own, layers):
                    yield offsets[first] + words, values

    write_vectors(out, int(offsets[-1]), layers.shape(encoder), batches(), offsets)
    return int(offsets[-1])


def lines_of(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file. Raises UsageError at the end if it has no words."""
    number, has_words = 0, False
    try:
        with path.open("rb") as stream:
            for line in (part for raw in stream for part in raw.splitlines()):
                number += 1
                text = line.decode("utf-8" if number > 1 else "utf-8-sig")
                has_words = has_words or bool(text.split())
                yield text
    except OSError as error:
        raise UsageError(f"input={path}: cannot be read") from error
    except UnicodeDecodeError as error:
        raise SesameError(
            f"{path}, line {number}: not UTF-8 at byte {error.start} of the line"
        ) from error
    if not has_words:
        raise UsageError(f"input={path}: has no words; give one sentence per line")


def chunks_of(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines of a UTF-8 file in chunks that fit in memory; also the number of lines before
    each chunk."""
    first, size = 0, 0
    chunk: list[str] = []
    for line in lines_of(path):
        chunk.append(line)
        size += len(line) + 1
        if size >= CHUNK_CHARACTERS:
            yield first, chunk
            first, size, chunk = first + len(chunk), 0, []
    yield first, chunk


def _encode(
    encoder: GivesStates, sentences: Sequence[Sequence[str]], before: int = 0
) -> tuple[EncodedInputs, Ints]:
    """Encode the sentences that have words; also return the word offsets of all sentences.

    before: the number of sentences of the input before these.
    """
    counts = np.array([len(words) for words in sentences], np.int64)
    given: list[tuple[Words, ...]] = [
        (words if isinstance(words, TextWords) else tuple(words),)
        for words in sentences
        if len(words)
    ]
    inputs = encoder.encode_words(given, encoder.longest or LONGEST)
    short = np.flatnonzero(inputs.word_counts < counts[counts > 0])
    if short.size:
        number = int(np.flatnonzero(counts)[short[0]])
        raise SesameError(
            f"sentence {before + number + 1} of the input: its {counts[number]} words do not fit "
            f"into the encoder's {encoder.longest} positions; split it"
        )
    return inputs, offsets_of(counts.tolist())


def _vectors(
    encoder: GivesStates, inputs: EncodedInputs, offsets: Ints, layers: Layers
) -> Iterator[Batch]:
    """Yield (word numbers, their vectors) per batch of sentences of similar length."""
    encoder.eval()
    device = next(encoder.parameters()).device
    numbers = np.arange(offsets[-1])

    def compute(rows: Ints) -> Batch:
        batch = inputs.batch(rows).to(device)
        states = [state[batch.word_starts_W] for state in encoder(batch)]
        starts = inputs.word_offsets[rows]
        words = [numbers[a : a + n] for a, n in zip(starts, batch.word_counts, strict=True)]
        return np.concatenate(words), layers.of(states).float().cpu().numpy()

    yield from for_each_batch(compute, inputs.lengths, device)
