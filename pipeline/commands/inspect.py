"""`sesame inspect`: decoded examples with masks, segments and labels, and their statistics."""

from pathlib import Path

from data_prep.errors import SesameError, UsageError
from pipeline.commands.arguments import Arguments, take_own
from pipeline.config.compose import compose_config
from pipeline.stages import STAGES
from pipeline.store.outputs import Store
from pipeline.store.verify import refuse_damage
from pipeline.workflow.graph import Graph
from pipeline.workflow.stage import Request, as_input

SHOWN = 5


def inspect_examples(arguments: Arguments) -> None:
    """Show `count` examples of this configuration, or check and show one shard file.

    `inspect dropped` shows dropped documents instead, `inspect unread` files that are not read.
    """
    if arguments.words == ["unread"]:
        from pipeline.commands.unread import inspect_unread

        inspect_unread(arguments.overrides)
        return
    if arguments.words == ["dropped"]:
        from pipeline.commands.dropped import inspect_dropped

        inspect_dropped(arguments.overrides)
        return
    arguments.refuse_words()
    own, overrides = take_own(arguments.overrides, {"count": str(SHOWN), "shard": ""})
    if not own["count"].isdigit():
        raise UsageError(f"count={own['count']}: must be a number")
    config = compose_config(overrides)
    graph = Graph(Store(Path(config.paths.store)), STAGES)
    examples = graph.add("examples", config)
    if not examples.output.is_done:
        words = " ".join(overrides)
        raise SesameError(f"inspect: no examples yet; run: sesame examples {words}".rstrip())
    refuse_damage(examples.output, graph.checksums, config.verifies_all)
    from data_prep.examples.rows import mask_rule
    from pipeline.commands.decoded_examples import inspect

    inspect(
        examples.output.path,
        as_input(graph.request(Request("tokenizer", config))).path,
        int(own["count"]),
        Path(own["shard"]) if own["shard"] else None,
        mask_rule(config.examples, "train"),
    )
