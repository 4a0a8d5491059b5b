"""Store a frozen encoder's hidden states: compute once, read from disk in all epochs and heads.

For inputs given as words only the first unit of each word is stored, so that words are the units.
A set of inputs that needs more than MOST_BYTES is not stored but computed at every read.

N units of all inputs, S states (of the embeddings and of every layer), D hidden width
"""

import shutil
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data_prep.text.words import TextWords
from pipeline.encoders.inputs import (
    EncodedInputs,
    InputBatch,
    Ints,
    Words,
    WordUnits,
    runs,
)
from pipeline.encoders.interface import Encoder

BATCH_UNITS = 8192
MOST_BYTES = 4 << 30  # maximum bytes stored for one set of inputs


@dataclass(frozen=True)
class StoredBatch(InputBatch):
    """A batch with its hidden states."""

    states_NSD: Tensor

    def to(self, device: torch.device) -> "StoredBatch":
        """The same batch on another device."""
        moved = super().to(device)
        assert isinstance(moved, StoredBatch)
        return replace(moved, states_NSD=self.states_NSD.to(device))


@dataclass(frozen=True)
class StoredInputs(EncodedInputs):
    """Inputs with the hidden states of all their units."""

    states_NSD: NDArray[np.float32]

    def batch(self, rows: Ints) -> StoredBatch:
        """Return the inputs `rows` with their states."""
        units, _ = runs(self.offsets[rows], self.lengths[rows])
        own = super().batch(rows)
        return StoredBatch(**vars(own), states_NSD=torch.from_numpy(self.states_NSD[units]))


@contextmanager
def stored_states(encoder: Encoder, folder: Path, device: torch.device) -> Iterator[Encoder]:
    """Yield the encoder with its states stored in `folder`.

    The folder is emptied at the start, in case a killed run left files, and removed at the end.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield StoredStates(encoder, folder, device)
    finally:
        shutil.rmtree(folder)


class StoredStates(Encoder):
    """Wraps an encoder: runs it once per set of inputs and stores the states in `folder`."""

    def __init__(self, encoder: Encoder, folder: Path, device: torch.device) -> None:
        super().__init__()
        self._encoder = [encoder.eval().to(device)]  # in a list, so that it is not a submodule
        self._folder = folder
        self._device = device
        self._known: dict[Hashable, EncodedInputs] = {}
        self.hidden, self.states = encoder.hidden, encoder.states
        self.longest, self.joins_pairs = encoder.longest, encoder.joins_pairs

    def encode_texts(self, inputs: Sequence[tuple[str, ...]], max_length: int) -> EncodedInputs:
        """Encode sentences or pairs; the states of all units are stored."""
        return self._stored("encode_texts", inputs, max_length, words_only=False)

    def encode_words(self, inputs: Sequence[tuple[Words, ...]], max_length: int) -> EncodedInputs:
        """Encode words; the states of each word's first unit are stored, for pairs of all units.

        Span heads need all units of a pair.
        """
        words_only = len(inputs[0]) == 1
        return self._stored("encode_words", inputs, max_length, words_only)

    def word_units(self, sentences: Sequence[Words]) -> WordUnits:
        """Return the wrapped encoder's word units."""
        return self._encoder[0].word_units(sentences)

    def divide_words(self, words: TextWords) -> TextWords:
        """Return the wrapped encoder's parts of words."""
        return self._encoder[0].divide_words(words)

    def special_units(self, sentences: int) -> int:
        """Return the wrapped encoder's number of special units."""
        return self._encoder[0].special_units(sentences)

    @property
    def plain(self) -> Encoder:
        """The wrapped encoder."""
        return self._encoder[0].plain

    def forward(self, batch: InputBatch) -> list[Tensor]:
        """Return the stored hidden states of every layer; compute those not stored."""
        if isinstance(batch, StoredBatch):
            return list(batch.states_NSD.unbind(1))
        with torch.no_grad():
            states: list[Tensor] = self._encoder[0](batch)
        return states

    def _stored(
        self, method: str, inputs: Sequence[Hashable], max_length: int, words_only: bool
    ) -> EncodedInputs:
        key = (method, max_length, tuple(inputs))
        if key not in self._known:
            encoded: EncodedInputs = getattr(self._encoder[0], method)(inputs, max_length)
            offsets = encoded.word_offsets if words_only else encoded.offsets
            shape = (int(offsets[-1]), self.states, self.hidden)
            fits = 4 * np.prod(shape) <= MOST_BYTES
            self._known[key] = self._compute(encoded, shape, words_only) if fits else encoded
        return self._known[key]

    @torch.inference_mode()
    def _compute(
        self, inputs: EncodedInputs, shape: tuple[int, int, int], words_only: bool
    ) -> StoredInputs:
        path = self._folder / f"{len(self._known)}.npy"
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        number = (np.cumsum(inputs.lengths) - 1) // BATCH_UNITS
        with path.open("wb") as stream:  # not mapped: a full disk raises an error, not SIGBUS
            np.lib.format.write_array_header_1_0(stream, header)
            for rows in np.split(np.arange(len(number)), np.flatnonzero(np.diff(number)) + 1):
                batch = inputs.batch(rows).to(self._device)
                states = torch.stack(self._encoder[0](batch), 1)
                if words_only:
                    states = states[batch.word_starts_W]
                stream.write(states.float().cpu().numpy().tobytes())
        states_NSD = np.load(path, mmap_mode="r", allow_pickle=False)
        if not words_only:
            own = {item.name: getattr(inputs, item.name) for item in fields(EncodedInputs)}
            return StoredInputs(**own, states_NSD=states_NSD)
        offsets = inputs.word_offsets
        positions = runs(offsets[:-1], np.diff(offsets))[1]
        return StoredInputs(
            tokens=np.zeros(len(positions), np.int32),
            offsets=offsets,
            second=np.diff(offsets),
            word_starts=positions,
            word_offsets=offsets,
            cut=inputs.cut,
            states_NSD=states_NSD,
        )
