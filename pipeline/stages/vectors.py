"""Stage `vectors`: a vector for each word, trained on the shards or read from the user's file.

Reads document shards, or GloVe, word2vec or fastText files. Writes words.txt and vectors.npy.
Try it: sesame vectors vectors.source=glove.6B.50d.txt
"""

from pathlib import Path
from typing import Any

from data_prep.errors import UsageError
from data_prep.fields import result_keys
from pipeline.config.schema import Config
from pipeline.workflow.stage import Request, Stage, Work


class Vectors(Stage):
    """A vector per word: trained on the shards, or read from the user's file."""

    name = "vectors"
    format = 1
    sections = ("vectors",)

    def inputs(self, config: Config) -> dict[str, Request]:
        """Shards to train on, unless the vectors are given."""
        return {} if config.vectors.source else {"shard": Request("shard", config)}

    def keys(self, config: Config) -> dict[str, Any]:
        """How they are trained; given vectors are what their file holds."""
        return {} if config.vectors.source else {"vectors": result_keys(config.vectors)}

    def files(self, config: Config) -> list[tuple[str, Path]]:
        """The given vectors' files."""
        if not config.vectors.source:
            return []
        from data_prep.vectors.files import source_files

        source = Path(config.vectors.source)
        if not source.exists():
            raise UsageError(f"vectors.source={source}: there is no such file or folder")
        return [(file.name, file) for file in source_files(source)]

    def run(self, work: Work) -> dict[str, Any]:
        """Read or train, and write the table."""
        from data_prep.vectors.files import read_vectors
        from data_prep.vectors.train import train_vectors

        config = work.config.vectors
        if config.source:
            table = read_vectors(Path(config.source))
        else:
            table = train_vectors(work.inputs["shard"], config)
        table.write(work.out)
        return {"words": len(table.words), "width": table.vectors.shape[1]}
