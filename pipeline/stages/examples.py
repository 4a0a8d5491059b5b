"""Stage `examples`: pairs, masks and packs document shards into training rows, and proves them.

Reads the outputs of `shard` and `tokenizer`. Writes
    train-*.tar, heldout-*.tar  rows in chunks of columns, each tar with its index
    statistics.json             lengths, labels, masks, and what was checked
Try it: sesame examples
"""

from typing import Any

from pipeline.config import Config
from pipeline.stages.work import Request, Work

FORMAT = 1
SECTIONS = ("examples",)
ARRAY = True


def inputs(config: Config) -> dict[str, Request]:
    """The text and the vocabulary."""
    return {"shard": Request("shard", config), "tokenizer": Request("tokenizer", config)}


def run(work: Work) -> dict[str, Any]:
    """Make the rows of both splits; counts are by split."""
    from data_prep.examples.build import build

    shards, tokenizer = work.inputs["shard"], work.inputs["tokenizer"]
    return build(shards, tokenizer, work.out, work.config.examples, work.share)
