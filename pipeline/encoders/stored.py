"""Store a frozen encoder's hidden states: compute once, read from disk in all epochs and heads.

For inputs given as words only the first unit of each word is stored, so that words are the units.
States are stored in half precision (float16), one file per state, so that a head reads only the
states it needs. float16 has three more bits than bfloat16 for the same size: its rounding error is
0.05 % of a value. Its range is smaller, so a set of inputs with a state beyond it is not stored.

A set of inputs that is not stored is computed at every read, in bounded memory. Reasons are a state
beyond the range, and a size beyond MOST_BYTES or half of the free disk space.

N units of all inputs, D hidden width
"""

import shutil
from collections.abc import Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data_prep.progress import console
from data_prep.text.words import TextWords
from pipeline.encoders.inputs import (
    EncodedInputs,
    InContext,
    InputBatch,
    Ints,
    Words,
    WordUnits,
    runs,
)
from pipeline.encoders.interface import Encoder

BATCH_UNITS = 8192
MOST_BYTES = 32 << 30  # maximum bytes of all stored sets together
Halves = NDArray[np.float16]


@dataclass(frozen=True)
class StoredBatch(InputBatch):
    """A batch with the hidden states of a stored set, by number of the state."""

    states: dict[int, Tensor]  # [N, D] each, in half precision

    def to(self, device: torch.device) -> "StoredBatch":
        """The same batch on another device."""
        moved = super().to(device)
        assert isinstance(moved, StoredBatch)
        return replace(moved, states={n: x_ND.to(device) for n, x_ND in self.states.items()})


@dataclass(frozen=True)
class StoredInputs(EncodedInputs):
    """Inputs with hidden states of all their units, by number of the state."""

    states: dict[int, Halves]  # [N, D] each

    def batch(self, rows: Ints) -> StoredBatch:
        """Return the inputs `rows` with their states."""
        units, _ = runs(self.offsets[rows], self.lengths[rows])
        own = super().batch(rows)
        states = {number: torch.from_numpy(x_ND[units]) for number, x_ND in self.states.items()}
        return StoredBatch(**vars(own), states=states)


@contextmanager
def stored_states(
    encoder: Encoder, folder: Path, device: torch.device, needed: Sequence[int]
) -> Iterator["StoredStates"]:
    """Yield the encoder with its states `needed` stored in `folder`.

    The folder is emptied at the start, in case a killed run left files, and removed at the end.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield StoredStates(StateStore(encoder, folder, device, needed), needed)
    finally:
        shutil.rmtree(folder)


class StateStore:
    """Runs an encoder once per set of inputs and keeps the states `needed` in a folder."""

    def __init__(
        self, encoder: Encoder, folder: Path, device: torch.device, needed: Sequence[int]
    ) -> None:
        self.encoder = encoder.eval().to(device)
        self.needed = tuple(needed)
        self._folder = folder
        self._device = device
        self._known: dict[Hashable, EncodedInputs] = {}
        self._bytes = 0

    def inputs(
        self, method: str, texts: Sequence[Hashable], max_length: int, words_only: bool
    ) -> EncodedInputs:
        """Return the inputs of a set, with all stored states if the set can be stored."""
        key = (method, max_length, tuple(texts))
        if key not in self._known:
            encoded: EncodedInputs = getattr(self.encoder, method)(texts, max_length)
            self._known[key] = self._computed(encoded, words_only) or encoded
        return self._known[key]

    def _computed(self, inputs: EncodedInputs, words_only: bool) -> StoredInputs | None:
        """Return the inputs with their states; None, with a line to the user, if not stored."""
        units = int((inputs.word_offsets if words_only else inputs.offsets)[-1])
        size = 2 * units * self.encoder.hidden * len(self.needed)
        limit = min(MOST_BYTES, (shutil.disk_usage(self._folder).free + self._bytes) // 2)
        if self._bytes + size > limit:
            _say_not_stored(f"take {size / 1e9:.1f} GB, of {limit / 1e9:.1f} GB for all")
            return None
        states = self._write(inputs, units, words_only)
        if states is None:
            _say_not_stored("exceed the range of half precision")
            return None
        self._bytes += size
        if not words_only:
            own = {item.name: getattr(inputs, item.name) for item in fields(EncodedInputs)}
            return StoredInputs(**own, states=states)
        offsets = inputs.word_offsets
        positions = runs(offsets[:-1], np.diff(offsets))[1]
        return StoredInputs(
            tokens=np.zeros(len(positions), np.int32),
            offsets=offsets,
            second=np.diff(offsets),
            word_starts=positions,
            word_offsets=offsets,
            truncated=inputs.truncated,
            states=states,
        )

    @torch.inference_mode()
    def _write(
        self, inputs: EncodedInputs, units: int, words_only: bool
    ) -> dict[int, Halves] | None:
        """Write the states of a set; return them, or None if one is beyond the range."""
        paths = {n: self._folder / f"{len(self._known)}-{n}.npy" for n in self.needed}
        header = {"descr": "<f2", "fortran_order": False, "shape": (units, self.encoder.hidden)}
        number = (np.cumsum(inputs.lengths) - 1) // BATCH_UNITS
        with ExitStack() as files:  # not mapped: a full disk raises an error, not SIGBUS
            streams = {n: files.enter_context(path.open("wb")) for n, path in paths.items()}
            for stream in streams.values():
                np.lib.format.write_array_header_1_0(stream, header)
            for rows in np.split(np.arange(len(number)), np.flatnonzero(np.diff(number)) + 1):
                batch = inputs.batch(rows).to(self._device)
                states = self.encoder(batch)
                for n, stream in streams.items():
                    x_ND = states[n][batch.word_starts_W] if words_only else states[n]
                    half_ND = x_ND.half()
                    if not half_ND.isfinite().all() and x_ND.isfinite().all():
                        for path in paths.values():
                            path.unlink()
                        return None
                    stream.write(half_ND.cpu().numpy().tobytes())
        return {n: np.load(path, mmap_mode="r", allow_pickle=False) for n, path in paths.items()}


def _say_not_stored(reason: str) -> None:
    console.print(
        f"hidden states {reason}: not stored, but computed anew in every epoch", markup=False
    )


class StoredStates(Encoder):
    """Wraps an encoder: reads the states `needed` from a store; computes those not stored."""

    def __init__(self, store: StateStore, needed: Sequence[int]) -> None:
        super().__init__()
        self._store = store
        self._needed = tuple(needed)
        encoder = store.encoder
        self.hidden, self.states = encoder.hidden, encoder.states
        self.longest, self.joins_pairs = encoder.longest, encoder.joins_pairs

    def reading(self, needed: Sequence[int]) -> "StoredStates":
        """Return an encoder over the same store that reads only these states."""
        return StoredStates(self._store, needed)

    def encode_texts(self, inputs: Sequence[tuple[str, ...]], max_length: int) -> EncodedInputs:
        """Encode sentences or pairs; the states of all units are stored."""
        return self._chosen(self._store.inputs("encode_texts", inputs, max_length, False))

    def encode_words(self, inputs: Sequence[tuple[Words, ...]], max_length: int) -> EncodedInputs:
        """Encode words; the states of each word's first unit are stored, for pairs of all units.

        Span heads need all units of a pair.
        """
        words_only = len(inputs[0]) == 1
        return self._chosen(self._store.inputs("encode_words", inputs, max_length, words_only))

    def encode_in_context(self, inputs: Sequence[InContext], max_length: int) -> EncodedInputs:
        """Encode sentences; the states of their own words are stored, not those of the context."""
        return self._chosen(self._store.inputs("encode_in_context", inputs, max_length, True))

    def _chosen(self, inputs: EncodedInputs) -> EncodedInputs:
        if not isinstance(inputs, StoredInputs):
            return inputs
        return replace(inputs, states={number: inputs.states[number] for number in self._needed})

    def word_units(self, sentences: Sequence[Words]) -> WordUnits:
        """Return the wrapped encoder's word units."""
        return self._store.encoder.word_units(sentences)

    def divide_words(self, words: TextWords) -> TextWords:
        """Return the wrapped encoder's parts of words."""
        return self._store.encoder.divide_words(words)

    def special_units(self, sentences: int) -> int:
        """Return the wrapped encoder's number of special units."""
        return self._store.encoder.special_units(sentences)

    @property
    def plain(self) -> Encoder:
        """The wrapped encoder."""
        return self._store.encoder.plain

    @property
    def exact(self) -> Encoder:
        """The wrapped encoder, whose states are not rounded."""
        return self._store.encoder.exact

    def forward(self, batch: InputBatch) -> list[Tensor]:
        """Return one tensor per state: the needed ones, and an empty one for every other."""
        if isinstance(batch, StoredBatch):
            empty = torch.empty(0, device=batch.tokens_N.device)
            return [
                batch.states[n].float() if n in batch.states else empty for n in range(self.states)
            ]
        with torch.no_grad():
            states: list[Tensor] = self._store.encoder(batch)
        return states
