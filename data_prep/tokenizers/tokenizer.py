"""The tokenizer at work: text to piece ids, every distinct word tokenised once.

Reads a folder that the `tokenizer` stage wrote, or any Hugging Face or BERT tokenizer folder. Ids
are those of the `tokenizers` library. Where its rules never look across white space (all kinds we
train, and any BERT) text is cut into words, each new word goes through the library once, and the
ids of the text are put together from those; any other tokenizer goes through the library whole.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numba import njit
from numpy.typing import NDArray

from data_prep.tokenizers.alignment import Alignment, align
from data_prep.tokenizers.huggingface import (
    BYTE_PIECE,
    KINDS,
    SPACE_MARK,
    Specials,
    pieces_of,
    special_ids,
)
from data_prep.tokenizers.normalise import sentencepiece_normaliser
from data_prep.tokenizers.sources import read_source
from data_prep.tokenizers.words import cuts_words
from data_prep.tokenizers.wordtable import WordTable, as_buffer

BLOCK = 1 << 20  # bytes of text worked on at once
CACHE_WORDS = 1 << 20  # words remembered between calls
CACHE_BYTES = 1 << 25
# How far around a word a tokenizer looks to make its pieces: not at all (words are those of
# data_prep.text.words.split_words), up to the next white space, or over the whole text.
REACHES = {True: "word", False: "space", None: "text"}


@dataclass(frozen=True)
class Encoded:
    """The pieces of several texts, one after another."""

    ids: NDArray[np.int32]  # [N]
    offsets: NDArray[np.int64]  # [texts + 1]: text t has ids[offsets[t] : offsets[t + 1]]

    def __len__(self) -> int:
        return self.offsets.size - 1

    def __getitem__(self, text: int) -> NDArray[np.int32]:
        return self.ids[self.offsets[text] : self.offsets[text + 1]]


class Tokenizer:
    """Text to ids and back; no special pieces are added, and none is read from text."""

    def __init__(self, library: tokenizers.Tokenizer, specials: Specials) -> None:
        library.encode_special_tokens = True  # "[MASK]" in a text is six characters
        self.library = library
        stated = json.loads(library.to_str())
        self.kind = KINDS[stated["model"]["type"]]
        self._pieces = pieces_of(library)
        self.size = len(self._pieces)
        ids = special_ids(library, specials)
        self.pad, self.unk, self.cls, self.sep, self.mask = ids.values()
        self.starts_word = _starts_word(self._pieces, stated)
        self.ordinary = _ordinary(self._pieces, library)
        punctuation_stands_alone = _cut(stated)
        self.reach = REACHES[punctuation_stands_alone]
        self._words = (
            None if punctuation_stands_alone is None
            else _Words(library, punctuation_stands_alone)
        )  # fmt: skip

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        """The tokenizer of a folder."""
        source = read_source(Path(folder))
        return cls(source.tokenizer, source.specials)

    def encode(self, texts: Sequence[str]) -> Encoded:
        """The ids of each text, as `encode_batch(texts, add_special_tokens=False)` gives them."""
        work = self._whole if self._words is None else self._words.encode
        ids = [np.zeros(0, np.int32)]
        lengths = [np.zeros(1, np.int64)]
        for block in _blocks(texts):
            block_ids, block_lengths = work(block)
            ids.append(block_ids)
            lengths.append(block_lengths)
        return Encoded(np.concatenate(ids), np.cumsum(np.concatenate(lengths)))

    def encode_words(self, words: Sequence[str]) -> Encoded:
        """The ids of each word as it is tokenised inside a sentence, after white space."""
        if self._words is None:  # some kinds, as RoBERTa's, put the space into the word's piece
            return self.encode([f" {word}" for word in words])
        return self.encode(words)

    def align(self, text: str, words: NDArray[np.int64]) -> Alignment:
        """The pieces of a whole text, and which of them its words have; [words, 2] characters."""
        encoded = self.library.encode(text, add_special_tokens=False)
        characters = np.array(encoded.offsets, np.int64).reshape(-1, 2)
        return align(np.array(encoded.ids, np.int32), characters, words, self.unk)

    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """Readable text, special pieces included."""
        return str(self.library.decode([int(id) for id in ids], skip_special_tokens=False))

    def piece(self, id: int) -> str:
        """The piece with this id as the vocabulary writes it."""
        return self._pieces[id]

    def _whole(self, block: list[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        return _encode_each(self.library, block)


class _Words:
    """The words-once way: a table of distinct words, and the pieces of each."""

    def __init__(self, library: tokenizers.Tokenizer, punctuation_stands_alone: bool) -> None:
        self._library = library
        self._table = WordTable(punctuation_stands_alone)
        self._forget()

    def _forget(self) -> None:
        self._table.clear()
        self._ids = np.zeros(0, np.int32)
        self._starts = np.zeros(1, np.int64)  # word w has ids[starts[w] : starts[w + 1]]

    def encode(self, block: list[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The block's ids, and how many each text has."""
        if len(self._table) > CACHE_WORDS or self._table.size > CACHE_BYTES:
            self._forget()
        known = len(self._table)
        buffer = as_buffer([text.encode() for text in block])
        words, text_ends = self._table.number(buffer, len(block))
        if len(self._table) > known:
            new = [word.decode() for word in self._table.words(known)]
            ids, lengths = _encode_each(self._library, new)
            self._starts = np.concatenate([self._starts, self._ids.size + np.cumsum(lengths)])
            self._ids = np.concatenate([self._ids, ids])
        expanded, text_lengths = _expand(words, text_ends, self._starts, self._ids)
        return expanded, text_lengths


@njit(cache=True)  # type: ignore[untyped-decorator]
def _expand(
    words: NDArray[np.int32],
    text_ends: NDArray[np.int64],
    starts: NDArray[np.int64],
    ids: NDArray[np.int32],
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The words' pieces one after another, and how many each text has."""
    lengths = np.zeros(text_ends.size, np.int64)
    first = 0
    for text in range(text_ends.size):
        for word in words[first : text_ends[text]]:
            lengths[text] += starts[word + 1] - starts[word]
        first = text_ends[text]
    expanded = np.empty(lengths.sum(), np.int32)
    count = 0
    for word in words:
        for index in range(starts[word], starts[word + 1]):
            expanded[count] = ids[index]
            count += 1
    return expanded, lengths


def _encode_each(
    library: tokenizers.Tokenizer, texts: Sequence[str]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    # One by one, not as a batch: a batch starts threads in every worker process.
    lists = [library.encode(text, add_special_tokens=False).ids for text in texts]
    ids = np.array([id for each in lists for id in each], np.int32)
    return ids, np.array([len(each) for each in lists], np.int64)


def _blocks(texts: Sequence[str]) -> Iterator[list[str]]:
    block: list[str] = []
    size = 0
    for text in texts:
        block.append(text)
        size += len(text)
        if size >= BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


def _cut(stated: dict[str, Any]) -> bool | None:
    """Whether words may be cut at ASCII punctuation too; None where words cannot be cut at all.

    Cutting is exact where every rule of the tokenizer stays inside the cuts. BERT's do, at ASCII
    white space and around ASCII punctuation: its normaliser looks at characters and combining
    marks, which never combine with either across a cut. Those of our SentencePiece kinds do at
    ASCII white space. Nothing is assumed of other tokenizers.
    """
    # Pieces that are looked for in the text before all rules.
    added = [token for token in stated["added_tokens"] if not token["special"]]
    if any(not _stays_in_a_word(token) for token in added):
        return None
    if stated["model"]["type"] == "WordLevel":
        return False if cuts_words(stated) else None
    normaliser, cutter = stated["normalizer"], stated["pre_tokenizer"]
    if cutter == {"type": "BertPreTokenizer"}:
        is_bert = normaliser is None or normaliser["type"] == "BertNormalizer"
        return not added if is_bert else None
    is_ours = any(
        normaliser == json.loads(sentencepiece_normaliser(lowercase, strip_accents).__getstate__())
        for lowercase in (False, True)
        for strip_accents in (False, True)
    )
    return False if is_ours and _is_metaspace(cutter) else None


def _stays_in_a_word(token: dict[str, Any]) -> bool:
    """Whether an added piece is found in a word alone as it is in running text."""
    looks_around = any(token[rule] for rule in ("single_word", "lstrip", "rstrip", "normalized"))
    return not looks_around and len(token["content"].split()) == 1


def _is_metaspace(cutter: dict[str, Any] | None) -> bool:
    steps = (cutter or {}).get("pretokenizers") or [{}]
    return (
        steps[0].get("type") == "Metaspace"
        and steps[0]["prepend_scheme"] == "always"
        and steps[0]["split"]
        and all(step["type"] == "Split" for step in steps[1:])
    )


def _starts_word(pieces: list[str], stated: dict[str, Any]) -> NDArray[np.bool_]:
    special = {token["content"] for token in stated["added_tokens"] if token["special"]}
    if stated["model"]["type"] == "WordPiece":
        prefix = stated["model"]["continuing_subword_prefix"]
        return np.array([not piece.startswith(prefix) for piece in pieces])
    if stated["model"]["type"] == "WordLevel":
        return np.ones(len(pieces), np.bool_)
    mark = "Ġ" if '"ByteLevel"' in json.dumps(stated["pre_tokenizer"]) else SPACE_MARK
    return np.array([piece.startswith(mark) or piece in special for piece in pieces])


def _ordinary(pieces: list[str], library: tokenizers.Tokenizer) -> NDArray[np.int64]:
    """Ids of pieces that stand for text: not special, reserved or single bytes."""
    added = library.get_added_tokens_decoder()
    special = {number for number, token in added.items() if token.special}
    reserved = re.compile(rf"\[unused\d+\]|{BYTE_PIECE}|")
    return np.array(
        [
            number
            for number, piece in enumerate(pieces)
            if number not in special and not reserved.fullmatch(piece)
        ],
        np.int64,
    )
