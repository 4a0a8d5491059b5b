"""Configuration of static word vectors (stage `vectors`)."""

from dataclasses import dataclass

from data_prep.fields import execution, result


@dataclass
class VectorsConfig:
    """Static word vectors: trained on the shards, or read from files."""

    source: str | None = execution(
        None,
        "use these vectors instead of training: a GloVe, word2vec or fastText file, or a folder "
        "with one .npy matrix and one .parquet file that lists its words",
        holds_environment=True,
    )
    kind: str = result(
        "skipgram", "model that gensim trains", choices=("skipgram", "cbow", "fasttext")
    )
    width: int = result(100, "dimensions of a vector", at_least=1)
    window: int = result(5, "context words on each side", at_least=1)
    min_count: int = result(5, "words with fewer occurrences get no vector", at_least=1)
    negative: int = result(5, "negative samples per positive one", at_least=1)
    epochs: int = result(5, "passes over the corpus", at_least=1)
    lowercase: bool = result(True, "convert text to lower case before training")
    seed: int = result(0, "seed of the initial vectors and of sampling", at_least=0)
