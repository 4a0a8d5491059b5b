"""Stage `tokenizer`: document shards to a vocabulary, in a folder `AutoTokenizer` loads.

Try it: sesame tokenizer corpus.paths=texts/ tokenizer.kind=unigram tokenizer.vocab_size=8000
"""

from pathlib import Path
from typing import Any

from pipeline.config.schema import Config
from pipeline.workflow.stage import Request, Work

FORMAT = 2
SECTIONS = ("tokenizer",)


def inputs(config: Config) -> dict[str, Request]:
    """Shards to train on, unless the tokenizer is given."""
    return {} if config.tokenizer.source else {"shard": Request("shard", config)}


def files(config: Config) -> list[tuple[str, Path]]:
    """The given tokenizer's files, each by its name below the given folder."""
    if not config.tokenizer.source:
        return []
    from data_prep.tokenizers.sources import source_files

    return [(file.name, file) for file in source_files(Path(config.tokenizer.source))]


def run(work: Work) -> dict[str, Any]:
    """Make the tokenizer."""
    from data_prep.tokenizers.build import build_tokenizer

    return build_tokenizer(work.inputs.get("shard"), work.out, work.config.tokenizer)
