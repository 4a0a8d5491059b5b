"""Toy text for ELMo in tests: sentences that count, as shards, a words tokenizer and examples."""

from pathlib import Path

import numpy as np

from data_prep.config import TokenizerConfig
from data_prep.examples.config import ExamplesConfig
from data_prep.examples.streams import build_streams
from data_prep.tokenizers.counting import WordCounts
from data_prep.tokenizers.vocabulary import write_words
from tests.data_prep.small_examples import write_shards

WORDS = [f"w{number}" for number in range(40)]
RARE = [f"rare{number}" for number in range(6)]  # read by their characters, predicted as unknown
PREDICTED = 3 + len(WORDS)


def counting_sentences(rng: np.random.Generator, count: int) -> list[str]:
    """Sentences that count upwards from anywhere; a rare word stands in some."""
    sentences = []
    for _ in range(count):
        start, length = int(rng.integers(len(WORDS))), int(rng.integers(3, 12))
        words = [WORDS[(start + step) % len(WORDS)] for step in range(length)]
        if rng.random() < 0.2:
            words[int(rng.integers(length))] = str(rng.choice(RARE))
        sentences.append(" ".join(words))
    return sentences


def make_tokenizer(folder: Path) -> Path:
    """The words of the toy text, the rare ones not predicted."""
    folder.mkdir(parents=True)
    words = [*WORDS, *RARE]
    counts = WordCounts(words, list(range(len(words), 0, -1)), 1000, len(words))
    write_words(counts, folder, TokenizerConfig(kind="words", vocab_size=PREDICTED))
    return folder


def make_shards(folder: Path, documents: int = 12) -> Path:
    """Documents of a few sections, in several tars."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    train = [[counting_sentences(rng, 10) for _ in range(2)] for _ in range(documents)]
    write_shards(folder, "train", train, 0, tars=3)
    held_out = [[counting_sentences(rng, 12)] for _ in range(4)]
    write_shards(folder, "heldout", held_out, documents, tars=1)
    return folder


def streams_config(**changes: object) -> ExamplesConfig:
    """Small chunks, so that streams cross them."""
    usual: dict[str, object] = {
        "pairs": "none", "max_seq_length": 12, "chunk_rows": 16, "shard_size": 8_000,
        "seed": 7, "workers": 1,
    }  # fmt: skip
    return ExamplesConfig(**(usual | changes))  # type: ignore[arg-type]


def make_examples(root: Path) -> tuple[Path, Path, Path]:
    """Shards, tokenizer and examples below `root`."""
    shards, tokenizer = make_shards(root / "shards"), make_tokenizer(root / "tokenizer")
    examples = root / "examples" / "streams"
    examples.mkdir(parents=True)
    build_streams(shards, tokenizer, examples, streams_config())
    return shards, tokenizer, examples
