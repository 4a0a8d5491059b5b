"""Stage `tokenizer`: document shards to a vocabulary, in a folder `AutoTokenizer` loads.

Try it: sesame tokenizer corpus.paths=texts/ tokenizer.kind=unigram tokenizer.vocab_size=8000
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.config.schema import Config
from pipeline.store.outputs import Store
from pipeline.store.references import Folder, Stored, resolve
from pipeline.workflow.stage import Input, Instance, Node, Planner, Request, Stage, Work


class Tokenizer(Stage):
    """Document shards to a vocabulary, or a vocabulary that the user brings."""

    name = "tokenizer"
    format = 2
    sections = ("tokenizer",)

    def inputs(self, config: Config) -> dict[str, Request]:
        """Shards to train on, unless the tokenizer is given."""
        return {} if config.tokenizer.source else {"shard": Request("shard", config)}

    def files(self, config: Config) -> list[tuple[str, Path]]:
        """The given tokenizer's files, each by its name below the given folder."""
        if not config.tokenizer.source:
            return []
        from data_prep.tokenizers.sources import source_files

        return [(file.name, file) for file in source_files(Path(config.tokenizer.source))]

    def run(self, work: Work) -> dict[str, Any]:
        """Make the tokenizer."""
        from data_prep.tokenizers.build import build_tokenizer

        return build_tokenizer(work.inputs.get("shard"), work.out, work.config.tokenizer)

    def resolve(self, graph: Planner, request: Request) -> Node | Input:
        """The vocabulary: trained here, brought by the user, or that of the model gone on from."""
        config = request.config
        for key, text, stage in (
            ("tokenizer.source", config.tokenizer.source, "tokenizer"),
            ("init.source", config.init.source, "pretrain"),
        ):
            if text is None:
                continue
            found = resolve(key, text, stage, graph.store)
            if isinstance(found, Folder):
                from data_prep.tokenizers.sources import has_vocabulary

                if key == "init.source" and not has_vocabulary(found.path):
                    continue  # such as a published ELMo, which reads characters
                own = replace(config.tokenizer, source=str(found.path.resolve()))
                return graph.add(self.name, replace(config, tokenizer=own))
            if stage == "pretrain":
                return upstream(graph.store, found, "tokenizer")
            return Input(found.output.reference, found.output.path)
        return graph.add(self.name, config)

    def add_instance(self, graph: Planner, instance: Instance) -> None:
        """The vocabulary that the settings refer to, made here or not."""
        self.resolve(graph, Request(self.name, instance.config))


def upstream(store: Store, found: Stored, role: str) -> Input:
    """What an output of the store read as `role`."""
    output = store.from_reference(found.output.request()["upstream"][role])
    return Input(output.reference, output.path)
