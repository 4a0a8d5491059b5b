"""Stage `examples`: pairs, masks and packs document shards into training rows, and proves them.

A vocabulary of words (ELMo) makes rows of single sentences instead, see `examples.streams`.
Reads the outputs of `shard` and `tokenizer`. Writes
    train-*.tar, heldout-*.tar  rows in chunks of columns, each tar with its index
    statistics.json             lengths, labels, masks, and what was checked
Try it: sesame examples
"""

from dataclasses import replace
from typing import Any

from data_prep.config import WORD_KINDS
from data_prep.errors import UsageError
from data_prep.fields import result_keys
from pipeline.config.schema import Config
from pipeline.workflow.stage import Instance, Planner, Request, Stage, Work


class Examples(Stage):
    """Document shards and a vocabulary to training rows."""

    name = "examples"
    format = 1
    sections = ("examples",)
    takes_shares = True

    def inputs(self, config: Config) -> dict[str, Request]:
        """The text and the vocabulary."""
        if config.tokenizer.kind in WORD_KINDS and config.examples.pairs != "none":
            raise UsageError(
                f"examples.pairs={config.examples.pairs}: tokenizer.kind={config.tokenizer.kind} "
                "makes streams of words, which have no pairs; use examples=streams"
            )
        return {"shard": Request("shard", config), "tokenizer": Request("tokenizer", config)}

    def keys(self, config: Config) -> dict[str, Any]:
        """The settings that shape the rows; not those of masks that the loader draws."""
        stored = config.examples.stored()
        # Before held-out masks had a rule of their own, they followed the training masks' rule.
        fixed = {"heldout_masks": "fixed"} if stored.masks_differ else {}
        return {"examples": result_keys(stored) | fixed}

    def run(self, work: Work) -> dict[str, Any]:
        """Make the rows of both splits; counts are by split."""
        from data_prep.examples.build import build
        from data_prep.examples.streams import build_streams
        from data_prep.tokenizers import Tokenizer

        shards, tokenizer = work.inputs["shard"], work.inputs["tokenizer"]
        make = build_streams if Tokenizer.load(tokenizer).kind == "words" else build
        return make(shards, tokenizer, work.out, work.config.examples.stored(), work.share)

    def add_instance(self, graph: Planner, instance: Instance) -> None:
        """The rows that pretraining reads: one set per length of its phases."""
        for request in example_sets(instance.config):
            graph.add(self.name, request.config, ", ".join(instance.point))


def example_sets(config: Config) -> list[Request]:
    """The examples of every phase's length."""
    return [
        Request(
            Examples.name,
            replace(config, examples=replace(config.examples, max_seq_length=phase.max_seq_length)),
        )
        for phase in config.phases
    ]
