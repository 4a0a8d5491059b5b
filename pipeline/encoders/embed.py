"""Contextual vectors of sentences, from any encoder: every layer, the top one, or a mix of all.

A word has one vector a layer (with pieces, that of its first), whatever else is in the batch. From
Python:
    encoder = load_encoder("my_elmo")
    for vectors in encoder.embed([["Stocks", "rose"], ["She", "rose"]]):
        ...  # [words, layers, width] of a sentence, or [words, width] of a mix or the top
To a file, in bounded memory: `sesame embed encoder=my_elmo input=sentences.txt`

N words, L layers, D width of a vector
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from data_prep.errors import SesameError, UsageError
from data_prep.files import atomic_write
from data_prep.progress import progress
from data_prep.text.words import TextWords
from pipeline.encoders.inputs import EncodedInputs, InputBatch, Words, evaluation_order, offsets_of

Ints = NDArray[np.int64]
Vectors = NDArray[np.float32]
CHOICES = ("all", "top", "mix")
LONGEST = 1 << 20  # words; an encoder with fewer positions says so itself


class GivesStates(Protocol):
    """What `embed` asks of an encoder; `interface.Encoder` has the contract of each member."""

    hidden: int
    states: int
    longest: int | None

    def encode_words(
        self, inputs: Sequence[tuple[Words, ...]], max_length: int
    ) -> EncodedInputs: ...

    def __call__(self, batch: InputBatch) -> list[Tensor]: ...

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def eval(self) -> object: ...


@dataclass(frozen=True)
class Layers:
    """Which vectors are wanted: `all`, `top`, or gamma * sum of weight * layer (`mix`)."""

    choice: str = "all"
    weights: tuple[float, ...] = ()  # of a mix, the embeddings' first; equal ones when empty
    gamma: float = 1.0

    def __post_init__(self) -> None:
        if self.choice not in CHOICES:
            raise UsageError(f"layers={self.choice}: must be one of {', '.join(CHOICES)}")

    def shape(self, encoder: GivesStates) -> tuple[int, ...]:
        """Of one word's vectors."""
        if self.weights and len(self.weights) != encoder.states:
            raise UsageError(
                f"weights: {len(self.weights)} are given, but the encoder has {encoder.states} "
                "layers, its embeddings included"
            )
        return (encoder.states, encoder.hidden) if self.choice == "all" else (encoder.hidden,)

    def of(self, states: list[Tensor]) -> Tensor:
        """The vectors [N, L, D] or [N, D]."""
        if self.choice == "top":
            return states[-1]
        layers_NLD = torch.stack(states, 1)
        if self.choice == "all":
            return layers_NLD
        weights = self.weights or (1 / len(states),) * len(states)
        return self.gamma * torch.einsum("l,nld->nd", layers_NLD.new_tensor(weights), layers_NLD)


def embed(
    encoder: GivesStates, sentences: Sequence[str | Sequence[str]], layers: Layers | str = "all"
) -> list[Vectors]:
    """The vectors of each sentence's words, one array per sentence.

    A sentence is its words, as they stand between spaces, or a string, whose words
    `split_words` finds: punctuation stands apart. Words of a string have the tokens that the whole
    string has. A sentence without words has an array of no rows; no sentences give
    an empty list.
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


def embed_file(encoder: GivesStates, sentences: Path, out: Path, layers: Layers) -> int:
    """Write the vectors of a file's sentences, one a line, words between spaces; returns N.

    A .safetensors file holds `vectors` [N, L, D] or [N, D] and `offsets`: sentence s has
    vectors[offsets[s] : offsets[s + 1]]. A .npy file holds the vectors, `.offsets.npy` beside it
    the offsets.
    """
    shape = layers.shape(encoder)
    inputs, offsets = _encode(encoder, read_sentences(sentences))
    total = int(offsets[-1])
    header = _npy_header(total, shape)
    if out.suffix == ".npy":
        with atomic_write(out.with_suffix(".offsets.npy")) as stream:
            np.save(stream, offsets)
    else:
        header = _safetensors_header(total, shape, offsets)
    with atomic_write(out) as stream, progress("embed", total) as bar:
        stream.write(header)
        stream.truncate(len(header) + 4 * total * int(np.prod(shape)))
        stream.flush()
        vectors = np.memmap(
            stream.name, np.float32, "r+", offset=len(header), shape=(total, *shape)
        )
        for words, values in _vectors(encoder, inputs, offsets, layers):
            vectors[words] = values
            bar.advance(len(words))
        vectors.flush()
    return total


def read_sentences(path: Path) -> list[list[str]]:
    """The words of every line."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"input={path}: cannot be read") from error
    sentences: list[list[str]] = []
    for line in lines:
        try:
            sentences.append(line.decode().split())
        except UnicodeDecodeError as error:
            raise SesameError(
                f"{path}, line {len(sentences) + 1}: not UTF-8 at byte {error.start} of the line"
            ) from error
    if not any(sentences):
        raise UsageError(f"input={path}: has no words; give one sentence a line")
    return sentences


def _encode(encoder: GivesStates, sentences: Sequence[Sequence[str]]) -> tuple[EncodedInputs, Ints]:
    """The sentences that have words, encoded, and where each sentence's words start."""
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
            f"sentence {number + 1} of the input: its {counts[number]} words do not fit into the "
            f"encoder's {encoder.longest} positions; split it"
        )
    return inputs, offsets_of(counts.tolist())


@torch.inference_mode()
def _vectors(
    encoder: GivesStates, inputs: EncodedInputs, offsets: Ints, layers: Layers
) -> Iterator[tuple[Ints, Vectors]]:
    """Numbers of words and their vectors, batch after batch of sentences of like lengths."""
    encoder.eval()
    device = next(encoder.parameters()).device
    numbers = np.arange(offsets[-1])
    for rows in evaluation_order(inputs.lengths):
        batch = inputs.batch(rows).to(device)
        states = [state[batch.word_starts_W] for state in encoder(batch)]
        starts = inputs.word_offsets[rows]
        words = [numbers[a : a + n] for a, n in zip(starts, batch.word_counts, strict=True)]
        yield np.concatenate(words), layers.of(states).float().cpu().numpy()


def _npy_header(words: int, shape: tuple[int, ...]) -> bytes:
    stream = BytesIO()
    described = {"descr": "<f4", "fortran_order": False, "shape": (words, *shape)}
    np.lib.format.write_array_header_1_0(stream, described)
    return stream.getvalue()


def _safetensors_header(words: int, shape: tuple[int, ...], offsets: Ints) -> bytes:
    """Everything before the vectors: the header's size, the header, the offsets."""
    end = offsets.nbytes + 4 * words * int(np.prod(shape))
    described: dict[str, Any] = {
        "offsets": {
            "dtype": "I64", "shape": list(offsets.shape), "data_offsets": [0, offsets.nbytes]
        },
        "vectors": {
            "dtype": "F32", "shape": [words, *shape], "data_offsets": [offsets.nbytes, end]
        },
    }  # fmt: skip
    text = json.dumps(described).encode()
    text += b" " * (-len(text) % 8)  # the format asks for data at multiples of 8 bytes
    return len(text).to_bytes(8, "little") + text + offsets.astype("<i8").tobytes()
