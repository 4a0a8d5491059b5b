"""Concatenate several encoders: a word's vector is the concatenation of its members' vectors.

Peters et al. 2018 combine ELMo and GloVe in this way. Units are words. For a member that reads
tokens, the first token of a word represents the word. Layers are matched from the last one down; a
member with fewer layers repeats its lowest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.encoders.inputs import (
    EncodedInputs,
    InputBatch,
    Ints,
    Words,
    WordUnits,
    fitting_words,
    offsets_of,
    part_sizes,
    runs,
    truncated_inputs,
)
from pipeline.encoders.interface import Encoder
from pipeline.encoders.words import sentences_as_words
from pipeline.store.encoder_files import MEMBERS


@dataclass(frozen=True)
class JoinedBatch(InputBatch):
    """A batch of words, with the corresponding batch of each member."""

    members: tuple[InputBatch, ...]

    def to(self, device: torch.device) -> "JoinedBatch":
        """The same batch on another device."""
        moved = InputBatch(
            self.tokens_N, self.positions_N, self.segments_N, self.lengths, self.second,
            self.word_starts_W, self.word_counts,
        ).to(device)  # fmt: skip
        return JoinedBatch(**vars(moved), members=tuple(each.to(device) for each in self.members))


@dataclass(frozen=True)
class JoinedInputs(EncodedInputs):
    """The words that fit into every member, with the inputs of each member."""

    members: tuple[EncodedInputs, ...]

    def batch(self, rows: Ints) -> JoinedBatch:
        """Return the inputs `rows` for all members."""
        own = super().batch(rows)
        return JoinedBatch(**vars(own), members=tuple(each.batch(rows) for each in self.members))


class Concatenation(Encoder):
    """Encoders whose vectors are concatenated word by word."""

    def __init__(self, members: Sequence[Encoder]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self._encoders = tuple(members)
        self.hidden = sum(member.hidden for member in members)
        self.states = max(member.states for member in members)
        self.grows = any(member.grows for member in members)
        limits = [member.longest for member in members if member.longest is not None]
        self.longest = min(limits, default=None)

    def encode_texts(self, inputs: Sequence[tuple[str, ...]], max_length: int) -> EncodedInputs:
        """Encode the words of one or two sentences."""
        return self.encode_words([sentences_as_words(texts) for texts in inputs], max_length)

    def encode_words(self, inputs: Sequence[tuple[Words, ...]], max_length: int) -> EncodedInputs:
        """Encode the words that fit into every member, so that all members have the same words."""
        taken = self.word_units([words for parts in inputs for words in parts])
        sizes_EP = part_sizes(inputs)
        room = max_length - self.special_units(sizes_EP.shape[1])
        fitting_EP, _ = fitting_words(offsets_of(taken.units), sizes_EP, room)
        kept: list[tuple[Words, ...]] = [
            tuple(words[:n] for words, n in zip(parts, counts, strict=True))
            for parts, counts in zip(inputs, fitting_EP.tolist(), strict=True)
        ]
        members = tuple(member.encode_words(kept, max_length) for member in self._encoders)
        offsets = members[0].word_offsets
        positions = runs(offsets[:-1], np.diff(offsets))[1]
        return JoinedInputs(
            tokens=np.zeros(len(positions), np.int32),
            offsets=offsets,
            second=fitting_EP[:, 0],
            word_starts=positions,
            word_offsets=offsets,
            truncated=truncated_inputs(fitting_EP, sizes_EP),
            members=members,
        )

    def blocks(self) -> list[list[nn.Parameter]]:
        """Return the members' blocks, matched from the last one down, as their layers are."""
        own = [member.blocks() for member in self._encoders]
        levels: list[list[nn.Parameter]] = [[] for _ in range(max(map(len, own)))]
        for blocks in own:
            for level, block in zip(levels[-len(blocks) :], blocks, strict=True):
                level.extend(block)
        return levels

    def lookup_tables(self) -> list[nn.Embedding]:
        """Return the members' tables."""
        return [table for member in self._encoders for table in member.lookup_tables()]

    def save(self, folder: Path) -> None:
        """Write one folder per member, in order."""
        for number, member in enumerate(self._encoders):
            own = folder / MEMBERS / f"{number:02d}"
            own.mkdir(parents=True)
            member.save(own)

    def word_units(self, sentences: Sequence[Words]) -> WordUnits:
        """Return the maximum units over members; an input may begin where every member allows."""
        taken = [member.word_units(sentences) for member in self._encoders]
        may_begin = np.all([each.may_begin for each in taken], 0)
        return WordUnits(np.max([each.units for each in taken], 0), may_begin)

    def special_units(self, sentences: int) -> int:
        """Return the maximum over members."""
        return max(member.special_units(sentences) for member in self._encoders)

    def forward(self, batch: InputBatch) -> list[Tensor]:
        """Return the hidden states of all members, concatenated per layer."""
        assert isinstance(batch, JoinedBatch)
        columns = []
        for member, own in zip(self._encoders, batch.members, strict=True):
            states = [state[own.word_starts_W] for state in member(own)]
            columns.append([states[0]] * (self.states - len(states)) + states)
        return [torch.cat(layer, 1) for layer in zip(*columns, strict=True)]
