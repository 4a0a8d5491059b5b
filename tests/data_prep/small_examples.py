"""A small corpus in shards, its tokenizer, and a config: what tests of examples start from."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.corpus.shard_format import Origin, StoredSection, write_shard
from data_prep.examples.chunks import Chunk, ChunkStore
from data_prep.examples.config import ExamplesConfig
from data_prep.tokenizers.huggingface import Specials, from_vocabulary, write_folder

LENGTH = 32
WORDS = [
    "the",
    "a",
    "sea",
    "ship",
    "cap",
    "##tain",
    "##s",
    "wind",
    "blow",
    "##ing",
    "old",
    "man",
    "wave",
    ".",
    ",",
    "[",
    "]",
    "MASK",
]
Documents = list[list[list[str]]]  # sentences by document and section


def make_sentences(rng: np.random.Generator, count: int, longest: int = 14) -> list[str]:
    words = [word for word in WORDS if not word.startswith("##")] + ["captains", "blowing", "ñ"]
    words.append("[MASK]")
    return [" ".join(rng.choice(words, rng.integers(1, longest))) + " ." for _ in range(count)]


def write_shards(folder: Path, split: str, documents: Documents, first: int, tars: int) -> None:
    """Shards with one section after another, `tars` files for a split."""
    sections = [
        StoredSection(
            number, section, "\n".join(sentences).encode(), Origin("", "test").encode(), 0, 0
        )
        for number, document in enumerate(documents, first)
        for section, sentences in enumerate(document)
    ]
    for tar, part in enumerate(np.array_split(np.arange(len(sections)), tars)):
        write_shard(folder / f"{split}-{tar:05d}.tar", (sections[index] for index in part))


def make_shards(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    folder.mkdir()
    train = [[make_sentences(rng, 40), make_sentences(rng, 25)] for _ in range(12)]
    train += [[make_sentences(rng, 1)], [["\x00"]], [make_sentences(rng, 2, 90)]]
    write_shards(folder, "train", train, 0, tars=5)
    heldout = [[make_sentences(rng, 30)] for _ in range(6)]
    write_shards(folder, "heldout", heldout, len(train), tars=1)
    return folder


def make_tokenizer(folder: Path, words: list[str]) -> Path:
    """A WordPiece tokenizer of these pieces."""
    library = from_vocabulary([*Specials().names(), *words], False, False, Specials())
    write_folder(folder, library, Specials(), None)
    return folder


def config(**changes: Any) -> ExamplesConfig:
    usual = ExamplesConfig(
        max_seq_length=LENGTH, masking="static", chunk_rows=16, shard_size=40_000, seed=7, workers=1
    )
    return replace(usual, **changes)


def read_all(folder: Path, split: str = "train") -> list[Chunk]:
    store = ChunkStore(folder, split)
    return [store.read(number) for number in range(store.chunks)]
