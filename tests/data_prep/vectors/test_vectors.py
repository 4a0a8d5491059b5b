"""Word vectors: every published form gives the same table, and training repeats itself."""

import io
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from data_prep.corpus.shard_format import Origin, StoredSection, write_shard
from data_prep.errors import SesameError
from data_prep.vectors.config import VectorsConfig
from data_prep.vectors.files import read_vectors
from data_prep.vectors.table import read_table
from data_prep.vectors.train import ShardSentences, train_vectors

WORDS = ["the", "café", "of", "."]
VECTORS = np.array([[1, 2, 3], [0.5, -1, 0], [0, 0.25, 4], [9, 8, 7]], np.float32)


def glove(folder: Path) -> Path:
    lines = [f"{word} {' '.join(map(str, row))}" for word, row in zip(WORDS, VECTORS, strict=True)]
    (folder / "glove.txt").write_text("\n".join(lines) + "\n")
    return folder / "glove.txt"


def word2vec_text(folder: Path) -> Path:
    path = glove(folder)
    (folder / "vectors.vec").write_text(f"{len(WORDS)} 3\n" + path.read_text())
    return folder / "vectors.vec"


def word2vec_binary(folder: Path) -> Path:
    stream = io.BytesIO()
    stream.write(f"{len(WORDS)} 3\n".encode())
    for word, row in zip(WORDS, VECTORS, strict=True):
        stream.write(f"{word} ".encode() + row.tobytes())
    (folder / "vectors.bin").write_bytes(stream.getvalue())
    return folder / "vectors.bin"


def matrix_and_list(folder: Path) -> Path:
    np.save(folder / "matrix.npy", VECTORS)
    pyarrow.parquet.write_table(pyarrow.table({"index": WORDS}), folder / "index.parquet")
    return folder


@pytest.mark.parametrize("form", [glove, word2vec_text, word2vec_binary, matrix_and_list])
def test_every_form_gives_the_same_table(form, tmp_path: Path) -> None:
    table = read_vectors(form(tmp_path))
    assert table.words == WORDS
    assert np.array_equal(table.vectors, VECTORS)
    out = tmp_path / "out"
    out.mkdir()
    table.write(out)
    again = read_table(out)
    assert again.words == WORDS
    assert np.array_equal(again.vectors, VECTORS)


def test_fasttext_binaries_are_read(tmp_path: Path) -> None:
    from gensim.models import FastText
    from gensim.models.fasttext import save_facebook_model

    sentences = [["good", "film"], ["bad", "film"]] * 5
    model = FastText(sentences, vector_size=4, min_count=1, bucket=10, workers=1, seed=0)
    save_facebook_model(model, str(tmp_path / "model.bin"))
    table = read_vectors(tmp_path / "model.bin")
    assert sorted(table.words) == ["bad", "film", "good"]
    for word, vector in zip(table.words, table.vectors, strict=True):
        np.testing.assert_allclose(vector, model.wv[word], rtol=1e-5)


def test_words_with_spaces_and_words_that_come_twice(tmp_path: Path) -> None:
    path = tmp_path / "odd.txt"
    path.write_text("a 1 2\n. . . 3 4\na 5 6\n")
    table = read_vectors(path)
    assert table.words == ["a", ". . ."]
    assert table.vectors.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("text", "place"),
    [("a 1 2\nsecret 3\n", ":2:"), ("a 1 2\nb x 2\n", ":2:"), ("", "no vectors"), ("a\n", ":1:")],
)
def test_a_damaged_line_is_named_and_not_shown(text: str, place: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.txt"
    path.write_text(text)
    with pytest.raises(SesameError, match=place) as caught:
        read_vectors(path)
    assert "secret" not in str(caught.value)


def test_damaged_binaries_and_folders_are_refused(tmp_path: Path) -> None:
    path = word2vec_binary(tmp_path)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(SesameError, match="damaged"):
        read_vectors(path)
    with pytest.raises(SesameError, match=r"0 \.npy and 0 \.parquet"):
        read_vectors(tmp_path)
    matrix_and_list(tmp_path)
    np.save(tmp_path / "matrix.npy", VECTORS[:2])
    with pytest.raises(SesameError, match="lists 4 words"):
        read_vectors(tmp_path)
    glove(tmp_path).write_text("a 1 nan\n")
    with pytest.raises(SesameError, match=r"vector 1 .* not finite"):
        read_vectors(tmp_path / "glove.txt")


def test_vectors_are_trained_on_shards_and_repeat_themselves(tmp_path: Path) -> None:
    text = b"Dogs chase the cat. Cats fear the dog.\n" * 40
    section = StoredSection(0, 0, text, Origin("", "").encode(), 40, 320)
    write_shard(tmp_path / "train-00000.tar", [section])
    config = VectorsConfig(width=8, min_count=2, epochs=1)
    table = train_vectors(tmp_path, config)
    assert {"dogs", "cat", "."} <= set(table.words)
    assert table.vectors.shape == (len(table.words), 8)
    again = train_vectors(tmp_path, config)
    assert np.array_equal(table.vectors, again.vectors)
    assert not np.array_equal(
        table.vectors, train_vectors(tmp_path, replace(config, seed=1)).vectors
    )
    with pytest.raises(SesameError, match=r"vectors\.min_count=10000"):
        train_vectors(tmp_path, replace(config, min_count=10_000))


def test_a_source_counts_as_its_weight_says(tmp_path: Path) -> None:
    texts = [(b"rare words here\n", 0.0), (b"common words here\n", 3.0), (b"plain\n", 1.0)]
    sections = [
        StoredSection(number, 0, text, Origin("", "").encode(), 1, 3, weight)
        for number, (text, weight) in enumerate(texts)
    ]
    write_shard(tmp_path / "train-00000.tar", sections)
    found = Counter(word for words in ShardSentences(tmp_path, True, 0) for word in words)
    assert found == {"common": 3, "words": 3, "here": 3, "plain": 1}
