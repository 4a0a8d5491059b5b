"""Word similarity agrees with gensim's own evaluation, and bad lists are refused."""

from pathlib import Path

import numpy as np
import pytest
from gensim.models import KeyedVectors
from gensim.test.utils import datapath

from data_prep.errors import SesameError
from data_prep.vectors.table import VectorTable
from pipeline.encoders import StaticEncoder
from pipeline.inference.similarity import measure, read_pairs


@pytest.mark.parametrize("name", ["simlex999.txt", "wordsim353.tsv"])
def test_correlations_are_those_of_gensim(name: str) -> None:
    path = Path(datapath(name))
    words = sorted({word.lower() for a, b, _ in read_pairs(path) for word in (a, b)})[::2]
    vectors = np.random.default_rng(0).normal(size=(len(words), 8)).astype(np.float32)
    theirs = KeyedVectors(8)
    theirs.add_vectors(words, vectors)
    ours = measure(StaticEncoder(VectorTable(words, vectors)), path)
    _, expected, unknown = theirs.evaluate_word_pairs(str(path))
    assert ours.spearman == pytest.approx(expected.statistic, abs=1e-6)
    assert ours.used == round(ours.pairs * (1 - unknown / 100))


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("word\tother\tjudged\na\tb\t1\nc\td\n")
    with pytest.raises(SesameError, match=":3: not two words and a number"):
        read_pairs(path)
