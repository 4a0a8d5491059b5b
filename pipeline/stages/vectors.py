"""Stage `vectors`: word vectors, trained on the shards or read from the user's file.

Reads document shards, or GloVe, word2vec or fastText files. Writes words.txt and vectors.npy.
Try it: sesame vectors vectors.source=glove.6B.50d.txt
"""

from pathlib import Path
from typing import Any

from data_prep.errors import UsageError
from data_prep.fields import result_keys
from pipeline.config.schema import Config
from pipeline.workflow.stage import Request, Stage, UserFiles, Work


class Vectors(Stage):
    """The stage that trains or converts word vectors."""

    name = "vectors"
    format = 3
    formats_before = (2, 1)
    sections = ("vectors",)

    def inputs(self, config: Config) -> dict[str, Request]:
        """Return the shards to train on; nothing if the vectors are given."""
        return {} if config.vectors.source else {"shard": Request("shard", config)}

    def keys(self, config: Config) -> dict[str, Any]:
        """Return the training settings; nothing for given vectors, whose files are hashed."""
        return {} if config.vectors.source else {"vectors": result_keys(config.vectors)}

    def files(self, config: Config) -> UserFiles:
        """Return the files of given vectors."""
        if not config.vectors.source:
            return UserFiles()
        from data_prep.vectors.files import source_files

        source = Path(config.vectors.source)
        if not source.exists():
            raise UsageError(f"vectors.source={source}: there is no such file or folder")
        return UserFiles([(file.name, file) for file in source_files(source)])

    def run(self, work: Work) -> dict[str, Any]:
        """Read or train the vectors and write words.txt and vectors.npy."""
        from data_prep.vectors.files import read_vectors
        from data_prep.vectors.train import train_vectors

        config = work.config.vectors
        if config.source:
            table = read_vectors(Path(config.source))
        else:
            table = train_vectors(work.inputs["shard"], config)
        table.write(work.out)
        return {"words": len(table.words), "width": table.vectors.shape[1]}
