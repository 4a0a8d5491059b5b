"""Configuration of static word vectors (stage `vectors`)."""

from dataclasses import dataclass

from data_prep.fields import execution, result


@dataclass
class VectorsConfig:
    """A vector for each word: trained on the shards, or given."""

    source: str | None = execution(
        None,
        "use these vectors instead of training some: a GloVe, word2vec or fastText file, or a "
        "folder with one .npy matrix and the .parquet list of its words",
    )
    kind: str = result(
        "skipgram", "what is trained, by gensim", choices=("skipgram", "cbow", "fasttext")
    )
    width: int = result(100, "numbers of a vector", at_least=1)
    window: int = result(5, "words to each side that a word is predicted from", at_least=1)
    min_count: int = result(5, "rarer words get no vector", at_least=1)
    negative: int = result(5, "words drawn against each true one", at_least=1)
    epochs: int = result(5, "passes over the corpus", at_least=1)
    lowercase: bool = result(True, "fold case before training")
    seed: int = result(0, "of the first vectors and the draws", at_least=0)
