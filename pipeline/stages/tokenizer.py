"""Stage `tokenizer`: trains a tokenizer on document shards, or converts one that is given.

Reads the output of `shard`, or the files of `tokenizer.source`. Writes a folder that transformers'
`AutoTokenizer` loads.
Try it: sesame tokenizer corpus.paths=texts/ tokenizer.kind=unigram tokenizer.vocab_size=8000
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.config.schema import Config
from pipeline.store.outputs import Store
from pipeline.store.references import Folder, Stored, resolve
from pipeline.workflow.stage import Input, Instance, Node, Planner, Request, Stage, UserFiles, Work


class Tokenizer(Stage):
    """The stage that trains a tokenizer or converts a given one."""

    name = "tokenizer"
    format = 4
    formats_before = (3, 2)
    sections = ("tokenizer",)

    def inputs(self, config: Config) -> dict[str, Request]:
        """Return the shards to train on; nothing if the tokenizer is given."""
        return {} if config.tokenizer.source else {"shard": Request("shard", config)}

    def keys(self, config: Config) -> dict[str, Any]:
        """Return the training settings; nothing for a given tokenizer, whose files are hashed."""
        return {} if config.tokenizer.source else super().keys(config)

    def earlier_keys(self, config: Config) -> dict[str, Any]:
        """Return the settings of the section, also for a given tokenizer."""
        return super().keys(config)

    def files(self, config: Config) -> UserFiles:
        """Return the files of a given tokenizer, by their names in its folder."""
        if not config.tokenizer.source:
            return UserFiles()
        from data_prep.tokenizers.sources import source_files

        files = source_files(Path(config.tokenizer.source))
        return UserFiles([(file.name, file) for file in files])

    def divided_passes(self, config: Config, files: UserFiles) -> tuple[str, ...]:
        """Return the pass that reads the training text; nothing for a given tokenizer."""
        return () if config.tokenizer.source else ("count",)

    def run(self, work: Work) -> dict[str, Any]:
        """Train or convert the tokenizer."""
        from data_prep.tokenizers.build import build_tokenizer, with_symbols

        symbols = work.config.corpus.redaction_symbols
        config = with_symbols(work.config.tokenizer, symbols)
        divided = self.divided_passes(work.config, work.files)
        passes = work.passes(config.workers, divided)
        return build_tokenizer(work.inputs.get("shard"), work.out, config, passes)

    def resolve(self, graph: Planner, request: Request) -> Node | Input:
        """Return the tokenizer: of `tokenizer.source`, else of `init.source`, else trained here."""
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
                    continue  # for example a published ELMo, which reads characters
                own = replace(config.tokenizer, source=str(found.path.resolve()))
                return graph.add(self.name, replace(config, tokenizer=own))
            if stage == "pretrain":
                return upstream(graph.store, found, "tokenizer")
            return Input(found.output.reference, found.output.path)
        return graph.add(self.name, config)

    def add_instance(self, graph: Planner, instance: Instance) -> None:
        """Add the tokenizer that the settings refer to, if it has to be made here."""
        self.resolve(graph, Request(self.name, instance.config))


def upstream(store: Store, found: Stored, role: str) -> Input:
    """Return the input with this role of an output in the store."""
    output = store.from_reference(found.output.request()["upstream"][role])
    return Input(output.reference, output.path)
