"""Raw text to document shards: `sesame shard corpus.paths=notes.jsonl`.

Reads the files that `corpus.paths` names; writes train and held-out tars, see data_prep.shards.
"""

from pathlib import Path
from typing import Any

from data_prep.cache import PieceCache
from data_prep.shard import make_shards
from data_prep.sources import discover
from pipeline.config import Config
from pipeline.content import Checksums
from pipeline.stages.work import Request, Work
from pipeline.store import CLEAN_CACHE

FORMAT = 2
SECTIONS: tuple[str, ...] = ("corpus",)
ARRAY = True


def inputs(config: Config) -> dict[str, Request]:
    """Nothing comes before it."""
    return {}


def files(config: Config) -> list[tuple[str, Path]]:
    """The corpus, by name below the root the user gave, and the lists that cleaning reads."""
    corpus = config.corpus
    lists = {
        "corpus.exclude_file": corpus.exclude_file,
        "corpus.abbreviations_file": corpus.abbreviations_file,
    }
    return [
        *((file.name, file.path) for file in discover(corpus.paths, corpus.sources)),
        *((key, Path(path).expanduser()) for key, path in lists.items() if path is not None),
    ]


def run(work: Work) -> dict[str, Any]:
    """Make the shards; what is cleaned is kept in the store for a corpus that grows."""
    config = work.config
    store = Path(config.paths.store)
    cache = None
    if config.corpus.cache_size:
        described = Checksums(store).describe(files(config))
        checksums = {name: str(values["checksum"]) for name, values in described.items()}
        cache = PieceCache(
            store / CLEAN_CACHE, checksums, version=FORMAT, most_bytes=config.corpus.cache_size
        )
    return make_shards(config.corpus, work.out, cache=cache, share=work.share)
