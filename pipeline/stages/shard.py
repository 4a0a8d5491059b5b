"""Raw text to document shards: `sesame shard corpus.paths=notes.jsonl`.

Reads the files that `corpus.paths` names; writes train and held-out tars, see data_prep.shards.
"""

from pathlib import Path
from typing import Any

from data_prep.shard import make_shards
from data_prep.sources import discover
from pipeline.config import Config
from pipeline.stages.work import Request, Work

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
    """Make the shards."""
    return make_shards(work.config.corpus, work.out, share=work.share)
