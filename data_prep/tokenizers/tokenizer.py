"""Convert text to token ids; every distinct word is tokenized only once.

Reads a folder that the `tokenizer` stage wrote, or any Hugging Face or BERT tokenizer folder. The
ids are those of the `tokenizers` library. If no rule of the tokenizer looks across white space (all
kinds we train, and every BERT), the text is split into words, the library tokenizes each new word
once, and the ids of the text are assembled from a table. Other tokenizers get the whole text.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numba import njit
from numpy.typing import NDArray

from data_prep.text.scripts import SPACELESS_CHARACTER
from data_prep.text.segmentation import separate_words
from data_prep.tokenizers.alignment import Alignment, align, separable_parts
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
from data_prep.tokenizers.word_marks import FLIP, with_flips
from data_prep.tokenizers.words import cuts_words, is_segmented
from data_prep.tokenizers.wordtable import WordTable, text_buffer

BLOCK = 1 << 20  # bytes of text worked on at once
CACHE_WORDS = 1 << 20  # words remembered between calls
CACHE_BYTES = 1 << 25
# The context that determines the tokens of a word: the word alone (as split by
# data_prep.text.words.split_like_bert), the text up to the next white space, or the whole text.
REACHES = {True: "word", False: "space", None: "text"}
EncodeEach = Callable[[Sequence[str]], tuple[NDArray[np.int32], NDArray[np.int64]]]


@dataclass(frozen=True)
class Encoded:
    """The N token ids of several texts, one after another."""

    ids: NDArray[np.int32]  # [N]
    offsets: NDArray[np.int64]  # [texts + 1]: text t has ids[offsets[t] : offsets[t + 1]]

    def __len__(self) -> int:
        return self.offsets.size - 1

    def __getitem__(self, text: int) -> NDArray[np.int32]:
        return self.ids[self.offsets[text] : self.offsets[text + 1]]


class Tokenizer:
    """Converts text to ids and back.

    It adds no special tokens, and reads "[MASK]" and the like in a text as plain text.
    """

    def __init__(self, library: tokenizers.Tokenizer, specials: Specials) -> None:
        library.encode_special_tokens = True  # read "[MASK]" in a text as six characters
        self.library = library
        stated = json.loads(library.to_str())
        self.kind = KINDS[stated["model"]["type"]]
        self._pieces = pieces_of(library)
        self.size = len(self._pieces)
        ids = special_ids(library, specials)
        self.pad, self.unk, self.cls, self.sep, self.mask = ids.values()
        self.starts_word = _starts_word(self._pieces, stated)
        self.starts_mask_word = self.starts_word | _is_spaceless(self._pieces)
        self.ordinary = _ordinary(self._pieces, library)
        punctuation_stands_alone = _cut(stated)
        self.reach = REACHES[punctuation_stands_alone]
        self._separates = is_segmented(library)
        self._words = (
            None if punctuation_stands_alone is None
            else _Words(self._encode_each, punctuation_stands_alone)
        )  # fmt: skip

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        """Load the tokenizer of a folder."""
        source = read_source(Path(folder))
        return cls(source.tokenizer, source.specials)

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of each text, equal to `encode_batch(texts, add_special_tokens=False)`.

        With a vocabulary of segmented words, they are those of the texts that `separate` returns.
        """
        marked = self.encode_marked(texts)
        return Encoded(marked.ids & ~FLIP, marked.offsets)

    def encode_marked(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of each text, with marks in scripts without spaces.

        `word_marks.FLIP` is added to the id of a token if it starts a word and `starts_mask_word`
        says that it does not, or the other way round.
        """
        work = self._encode_each if self._words is None else self._words.encode
        ids = [np.zeros(0, np.int32)]
        lengths = [np.zeros(1, np.int64)]
        for block in _blocks(texts):
            block_ids, block_lengths = work(block)
            ids.append(block_ids)
            lengths.append(block_lengths)
        return Encoded(np.concatenate(ids), np.cumsum(np.concatenate(lengths)))

    def separate(self, text: str) -> str:
        """Return a text as the library is given it: words apart, if this is a vocabulary of them.

        Vocabularies that were made without a segmenter, and all others, get the text as it is.
        """
        return separate_words(text) if self._separates else text

    def encode_words(self, words: Sequence[str]) -> Encoded:
        """Return the ids of each word as it is tokenized inside a sentence, after white space."""
        if self._words is None:  # some kinds, such as RoBERTa's, put the space into the token
            return self.encode([f" {word}" for word in words])
        return self.encode(words)

    def align(self, text: str, words: NDArray[np.int64]) -> Alignment:
        """Tokenize a whole text and align the tokens with its words.

        `words` are character ranges [W, 2]: start, end (excluded).
        """
        encoded = self.library.encode(text, add_special_tokens=False)
        characters = np.array(encoded.offsets, np.int64).reshape(-1, 2)
        return align(np.array(encoded.ids, np.int32), characters, words, self.unk)

    def parts(self, text: str) -> NDArray[np.int64]:
        """Return the character ranges that the tokens of a text tell apart: [parts, 2]."""
        encoded = self.library.encode(text, add_special_tokens=False)
        return separable_parts(text, np.array(encoded.offsets, np.int64).reshape(-1, 2))

    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """Return readable text, including special tokens."""
        return str(self.library.decode([int(id) for id in ids], skip_special_tokens=False))

    def piece(self, id: int) -> str:
        """Return the token with this id as it is written in the vocabulary."""
        return self._pieces[id]

    def _encode_each(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the marked ids of texts, one after another, and their number per text."""
        lists = []
        for text in texts:  # not encode_batch, which starts threads in every worker process
            encoding = self.library.encode(self.separate(text), add_special_tokens=False)
            is_marked = self.kind != "words" and SPACELESS_CHARACTER.search(text)
            lists.append(
                with_flips(text, encoding, self.starts_mask_word) if is_marked else encoding.ids
            )
        ids = np.array([id for each in lists for id in each], np.int32)
        return ids, np.array([len(each) for each in lists], np.int64)


class _Words:
    """Tokenizes every distinct word once: a table of words, and the token ids of each."""

    def __init__(self, encode_each: EncodeEach, punctuation_stands_alone: bool) -> None:
        self._encode_each = encode_each
        self._table = WordTable(punctuation_stands_alone)
        self._forget()

    def _forget(self) -> None:
        self._table.clear()
        self._ids = np.zeros(0, np.int32)
        self._starts = np.zeros(1, np.int64)  # word w has ids[starts[w] : starts[w + 1]]

    def encode(self, block: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the ids of a block of texts, and the number of ids per text."""
        if len(self._table) > CACHE_WORDS or self._table.size > CACHE_BYTES:
            self._forget()
        known = len(self._table)
        buffer = text_buffer(block)
        words, text_ends = self._table.number(buffer, len(block))
        if len(self._table) > known:
            new = [word.decode() for word in self._table.words(known)]
            ids, lengths = self._encode_each(new)
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
    """Return the ids of all words, one after another, and the number of ids per text.

    words: word numbers; text_ends: end of each text in `words`; word w has the ids
    ids[starts[w] : starts[w + 1]].
    """
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


def _blocks(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Divide texts into blocks of about `BLOCK` characters."""
    ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
    cuts = np.flatnonzero(np.diff(ends // BLOCK)) + 1
    for start, end in pairwise([0, *cuts.tolist(), len(texts)]):
        yield texts[start:end]


def _cut(stated: dict[str, Any]) -> bool | None:
    """Decide where text may be split before it is tokenized, from the tokenizer's JSON.

    Returns True: at white space and ASCII punctuation; False: at white space only; None: nowhere.
    Splitting is exact if no rule of the tokenizer looks across a split. This holds for BERT at
    ASCII white space and punctuation: its normaliser looks at single characters and combining
    marks, which do not combine across such a split. It holds for our SentencePiece kinds at ASCII
    white space. Nothing is assumed about other tokenizers.
    """
    # Tokens that the library searches in the text before it applies any rule.
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
    """Return True if an added token is found in a single word exactly as in running text."""
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


def _is_spaceless(pieces: list[str]) -> NDArray[np.bool_]:
    """Return True for tokens that begin with a letter of a script without spaces.

    Between spaces such a script has whole clauses, so for whole-word masks each token is a word.
    A token that begins with a combining mark belongs to the token before it.
    """
    bare = [piece.removeprefix("##").removeprefix(SPACE_MARK)[:1] for piece in pieces]
    return np.array(
        [
            bool(SPACELESS_CHARACTER.match(letter)) and unicodedata.category(letter)[0] != "M"
            for letter in bare
        ],
        np.bool_,
    )


def _ordinary(pieces: list[str], library: tokenizers.Tokenizer) -> NDArray[np.int64]:
    """Return the ids of tokens that stand for text: not special, reserved or single bytes."""
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


def load_tokenizer(folder: Path) -> Tokenizer:
    """Load a tokenizer once per process: a worker makes many units with the same one."""
    return _load(folder, (folder / "tokenizer.json").stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _load(folder: Path, changed: int) -> Tokenizer:
    return Tokenizer.load(folder)
