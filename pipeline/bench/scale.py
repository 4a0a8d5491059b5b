"""`sesame bench scale`: how the cost of every data pass grows with the corpus.

Writes synthetic corpora of n, 2n, 4n and 8n bytes and makes shards, vocabularies and examples of
each in this process. Per pass it counts opens, bytes read and written, and files made, which must
grow linearly, and peak memory, which must not grow; seconds stand beside them. `merge` is what a
stage does between its passes, in one process. The values at n, 2n, 4n and 8n are in the column
`spread`. See docs/scale.md for what follows for a terabyte.
Try it: sesame bench scale
"""

import json
import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from data_prep.config import CorpusConfig, TokenizerConfig
from data_prep.corpus.build import make_shards
from data_prep.examples.build import build
from data_prep.examples.config import ExamplesConfig
from data_prep.examples.streams import build_streams
from data_prep.passes import Passes
from data_prep.reading.sources import PIECE_BYTES
from data_prep.tokenizers.build import build_tokenizer
from pipeline.bench.figures import Figure
from pipeline.bench.footprint import NOTHING, Footprint, MeasuredUnits, measure_footprint
from pipeline.config.schema import Config

FACTORS = (1, 2, 4, 8)
SMALLEST = PIECE_BYTES  # n: bytes of text
COPIED, CHANGED = 0.05, 0.05  # share of documents that repeat another, exactly or nearly
UNITS = {
    "units": "", "opens": "", "read": "MB", "written": "MB", "files": "", "memory": "MB",
    "seconds": "s", "core_seconds": "s",
}  # fmt: skip

Footprints = dict[str, Footprint]  # by "<stage> <pass>"
Make = Callable[[Path, Passes], object]  # (out, passes)


@dataclass(frozen=True)
class Settings:
    """The stages that are measured, and their settings."""

    near_duplicates: float | None = 0.8
    shard_size: int = 256_000_000
    vocab_size: int = 8_000
    unit_bytes: int = PIECE_BYTES  # raw text per work unit of the clean pass
    chunk_rows: int = 256
    document_bytes: int = 2_000
    words: int = 50_000  # distinct words of the corpus
    traced: bool = False  # see `measure_footprint`


def measure(config: Config) -> list[Figure]:
    """Return one figure per pass and count."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        settings = Settings()
        measure_stages(SMALLEST // 8, root / "warm", settings)  # compiles and imports
        grown = [measure_stages(SMALLEST * factor, root / str(factor), settings)
                 for factor in FACTORS]  # fmt: skip
    return [
        _figure(name, count, [each[name] for each in grown])
        for name in grown[-1]
        for count in UNITS
    ]


def _figure(name: str, count: str, grown: Sequence[Footprint]) -> Figure:
    scale = 1e6 if UNITS[count] == "MB" else 1.0
    values = [getattr(each, count) / scale for each in grown]
    series = " · ".join(f"{value:,.4g}" for value in values)
    return Figure(f"{name}: {count}", values[-1], UNITS[count], spread=series)


def measure_stages(size: int, root: Path, settings: Settings) -> Footprints:
    """Make every data stage of a corpus of `size` bytes below `root`; measure each pass."""
    root.mkdir(parents=True)
    write_corpus(root / "corpus.jsonl", size, settings)
    corpus = CorpusConfig(
        paths=str(root / "corpus.jsonl"),
        near_duplicates=settings.near_duplicates,
        shard_size=settings.shard_size,
    )
    rows = ExamplesConfig(
        shard_size=settings.shard_size, chunk_rows=settings.chunk_rows, seed=0, masking="static"
    )
    shards, pieces, words = (root / name for name in ("shard", "pieces", "words"))
    vocabularies = {
        kind: TokenizerConfig(kind, settings.vocab_size) for kind in ("wordpiece", "words")
    }
    stages: dict[str, tuple[Path, Make]] = {
        "shard": (shards, lambda o, p: make_shards(corpus, o, settings.unit_bytes, passes=p)),
        "wordpiece": (
            pieces,
            lambda o, p: build_tokenizer(shards, o, vocabularies["wordpiece"], p),
        ),
        "words": (words, lambda o, p: build_tokenizer(shards, o, vocabularies["words"], p)),
        "pairs": (root / "pairs", lambda o, p: build(shards, pieces, o, rows, p)),
        "streams": (
            root / "streams",
            lambda o, p: build_streams(shards, words, o, replace(rows, pairs="none"), p),
        ),
    }
    found: Footprints = {}
    for name, (out, make) in stages.items():
        out.mkdir()
        units = MeasuredUnits(settings.traced)
        work = partial(make, out, Passes.below(out, units))
        whole = measure_footprint(work, root, settings.traced)
        found |= {f"{name} {of_pass}": each for of_pass, each in units.passes.items()}
        found[f"{name} merge"] = whole - sum(units.passes.values(), NOTHING)
    return found


def write_corpus(path: Path, size: int, settings: Settings) -> None:
    """Write documents as JSONL, `size` bytes or a little more.

    Every larger corpus begins with the smaller one. Words are drawn by Zipf's law. Some documents
    repeat an earlier one, exactly or with another sentence at the end.
    """
    draw = random.Random(0)
    words = [_word(number) for number in range(settings.words)]
    recent: list[str] = []
    with open(path, "w") as stream:
        while stream.tell() < size:
            chance = draw.random()
            if recent and chance < COPIED:
                text = draw.choice(recent)
            elif recent and chance < COPIED + CHANGED:
                text = draw.choice(recent) + f" {draw.choice(words).capitalize()} ends it."
            else:
                text = _document(draw, words, settings.document_bytes)
                recent = [*recent[-99:], text]
            stream.write(json.dumps({"text": text}) + "\n")


def _document(draw: random.Random, words: Sequence[str], size: int) -> str:
    paragraphs: list[str] = []
    while sum(map(len, paragraphs)) < size:
        sentences = []
        for _ in range(draw.randint(2, 6)):
            chosen = [
                words[int(len(words) ** draw.random()) - 1] for _ in range(draw.randint(5, 20))
            ]
            sentences.append(" ".join(chosen).capitalize() + ".")
        paragraphs.append(" ".join(sentences))
    return "\n\n".join(paragraphs)


def _word(number: int) -> str:
    """Return a word of one to four syllables; a different one for each number."""
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    word = ""
    number += 1
    while number:
        number, digit = divmod(number, len(syllables))
        word += syllables[digit]
    return word
