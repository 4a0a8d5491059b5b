"""Stage `examples`: converts document shards to training rows (pairs, masks, packing) and checks
them.

With a vocabulary of words (ELMo), rows are single sentences, see `examples.streams`.
Reads the outputs of `shard` and `tokenizer`. Writes
    train-*.tar, heldout-*.tar  rows in chunks of columns, each tar with its index
    statistics.json             lengths, labels, masks, and the results of the checks
Try it: sesame examples experiment=smoke
"""

from dataclasses import replace
from typing import Any

from data_prep.config import WORD_KINDS
from data_prep.errors import UsageError
from data_prep.fields import result_keys
from pipeline.config.schema import Config
from pipeline.workflow.stage import Instance, Planner, Request, Stage, UserFiles, Work


class Examples(Stage):
    """The stage that converts document shards to training rows."""

    name = "examples"
    format = 3
    formats_before = (2, 1)
    sections = ("examples",)

    def inputs(self, config: Config) -> dict[str, Request]:
        """Return shards and tokenizer. Raises `UsageError` for pairs with a vocabulary of words."""
        if config.tokenizer.kind in WORD_KINDS and config.examples.pairs != "none":
            raise UsageError(
                f"examples.pairs={config.examples.pairs}: tokenizer.kind={config.tokenizer.kind} "
                "makes streams of words, which have no pairs; use examples=streams"
            )
        return {"shard": Request("shard", config), "tokenizer": Request("tokenizer", config)}

    def keys(self, config: Config) -> dict[str, Any]:
        """Return the settings that determine the stored rows, without those of dynamic masks."""
        stored = config.examples.stored()
        # In earlier versions held-out masks followed the rule of the training masks.
        fixed = {"heldout_masks": "fixed"} if stored.masks_differ else {}
        return {"examples": result_keys(stored) | fixed}

    def divided_passes(self, config: Config, files: UserFiles) -> tuple[str, ...]:
        """Return all passes; those between the first and the last make rows or streams."""
        if config.tokenizer.kind in WORD_KINDS:
            return ("tokenize", "scatter", "gather", "write")
        pairs = ("pairs",) if config.examples.pairs == "nsp" else ()
        return ("tokenize", *pairs, "rows", "write")

    def run(self, work: Work) -> dict[str, Any]:
        """Make the rows of both splits; return counts by split."""
        from data_prep.examples.build import build
        from data_prep.examples.streams import build_streams
        from data_prep.tokenizers import Tokenizer
        from data_prep.tokenizers.build import warn_of_split_symbols

        shards, folder = work.inputs["shard"], work.inputs["tokenizer"]
        tokenizer = Tokenizer.load(folder)
        warn_of_split_symbols(tokenizer, work.config.corpus.redaction_symbols)
        make = build_streams if tokenizer.kind == "words" else build
        config = work.config.examples.stored()
        passes = work.passes(config.workers, self.divided_passes(work.config, work.files))
        return make(shards, folder, work.out, config, passes)

    def add_instance(self, graph: Planner, instance: Instance) -> None:
        """Add one set of rows per phase of pretraining."""
        for request in example_sets(instance.config):
            graph.add(self.name, request.config, ", ".join(instance.point))


def example_sets(config: Config) -> list[Request]:
    """Return one request per phase, for examples of the phase's length."""
    return [
        Request(
            Examples.name,
            replace(config, examples=replace(config.examples, max_seq_length=phase.max_seq_length)),
        )
        for phase in config.phases
    ]
