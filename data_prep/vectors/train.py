"""Train word vectors on document shards with gensim.

Words are those of `data_prep.text.words.split_like_bert`, as for encoders. Training uses one
thread: with more, gensim's result differs from run to run.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from data_prep.corpus.mixture import count_copies
from data_prep.corpus.shard_format import Section, parts, read_sections
from data_prep.errors import SesameError
from data_prep.text.words import split_like_bert
from data_prep.vectors.config import VectorsConfig
from data_prep.vectors.table import VectorTable


class ShardSentences:
    """An iterable over the sentences of the training shards, as lists of words; restartable.

    The sentences of a document come as often as its weight says.
    """

    def __init__(self, shards: Path, lowercase: bool, seed: int) -> None:
        self._parts = parts(shards, "train")
        self._lowercase = lowercase
        self._seed = seed

    def __iter__(self) -> Iterator[list[str]]:
        for part in self._parts:
            for section in read_sections(part.path, part.start, part.end):
                for sentence in section.sentences * self._copies(section):
                    text = sentence.lower() if self._lowercase else sentence
                    yield list(split_like_bert(text)[0])

    def _copies(self, section: Section) -> int:
        weights, documents = np.array([section.weight]), np.array([section.document])
        return int(count_copies(weights, documents, self._seed)[0]) if section.weight != 1 else 1


def train_vectors(shards: Path, config: VectorsConfig) -> VectorTable:
    """Train vectors for all words with at least `min_count` occurrences, most frequent first."""
    from gensim.models import FastText, Word2Vec

    sentences = ShardSentences(shards, config.lowercase, config.seed)
    make = FastText if config.kind == "fasttext" else Word2Vec
    model = make(
        vector_size=config.width,
        window=config.window,
        min_count=config.min_count,
        negative=config.negative,
        sg=int(config.kind != "cbow"),
        seed=config.seed,
        workers=1,
    )
    model.build_vocab(sentences)
    if not len(model.wv):
        raise SesameError(
            f"vectors.min_count={config.min_count}: no word occurs so often in the corpus; lower it"
        )
    model.train(sentences, total_examples=model.corpus_count, epochs=config.epochs)
    words = list(model.wv.index_to_key)
    return VectorTable(words, np.stack([model.wv[word] for word in words]).astype(np.float32))
