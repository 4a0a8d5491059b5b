"""Word vectors: every published form gives the same table, and training repeats itself."""

import io
import struct
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
    [
        ("a 1 2\nsecret 3\n", ":2:"),
        ("a 1 2\nb x 2\n", ":2:"),
        ("", "no words with vectors"),
        ("a\n", ":1:"),
    ],
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
    with pytest.raises(SesameError, match="lists 4 words, but there are 2 vectors"):
        read_vectors(tmp_path)
    glove(tmp_path).write_text("a 1 nan\n")
    with pytest.raises(SesameError, match=r"vector 1 .* not finite"):
        read_vectors(tmp_path / "glove.txt")


def fasttext_binary(folder: Path, **changed: int) -> Path:
    """Two words without n-grams, unless changed."""
    stated = {"width": 2, "buckets": 0, "shortest": 0, "longest": 0, "words": 2, "labels": 0,
              "pruned": -1, "quantized": 0, "rows": 2, "columns": 2} | changed  # fmt: skip
    settings = [12, stated["width"], 5, 5, 1, 5, 1, 1, 1, stated["buckets"], stated["shortest"],
                stated["longest"], 100]  # fmt: skip
    content = struct.pack("<i13id", 793712314, *settings, 1e-4)
    content += struct.pack("<3i2q", stated["words"], stated["words"], stated["labels"], 9,
                           stated["pruned"])  # fmt: skip
    content += b"".join(word + b"\0" + struct.pack("<qb", 3, 0) for word in (b"good", b"bad"))
    content += struct.pack("<?2q", stated["quantized"], stated["rows"], stated["columns"])
    (folder / "fasttext.bin").write_bytes(content + VECTORS[:2, :2].tobytes())
    return folder / "fasttext.bin"


def test_a_fasttext_model_without_ngrams_is_its_matrix(tmp_path: Path) -> None:
    table = read_vectors(fasttext_binary(tmp_path))
    assert table.words == ["good", "bad"]
    assert np.array_equal(table.vectors, VECTORS[:2, :2])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"words": 3}, "its matrix is"),
        ({"words": 2**31 - 1}, "cannot hold 2,147,483,647 words"),
        ({"words": -1}, "cannot hold -1 words"),
        ({"width": 2**31 - 1, "columns": 2**31 - 1}, "too early"),
        ({"rows": 2**62}, "its matrix is"),
        ({"columns": 3}, "its matrix is"),
        ({"buckets": -2, "rows": 0}, "n-grams are impossible"),
        ({"longest": 2**31 - 1}, "n-grams are impossible"),
        ({"labels": 1}, "supervised and pruned"),
        ({"pruned": 2**62}, "supervised and pruned"),
        ({"quantized": 1}, "quantized"),
    ],
)
def test_lying_sizes_of_fasttext_binaries_are_refused(
    tmp_path: Path, changed: dict[str, int], message: str
) -> None:
    with pytest.raises(SesameError, match=message):
        read_vectors(fasttext_binary(tmp_path, **changed))


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"4 999999999\n", "cannot hold 4 words of 999,999,999 numbers"),
        (b"99999999999999999999 3\n", "cannot hold"),
        (b"0 3\n", "cannot hold"),
        (b"-4 3\n", "not a count of words and a width"),
        (b"4 3" * 100, "not a count of words and a width"),
        (b"", "is empty"),
    ],
)
def test_lying_sizes_of_word2vec_binaries_are_refused(
    tmp_path: Path, header: bytes, message: str
) -> None:
    path = tmp_path / "vectors.bin"
    path.write_bytes(header + bytes(64) * bool(header))
    with pytest.raises(SesameError, match=message):
        read_vectors(path)


@pytest.mark.parametrize(
    ("array", "message"),
    [(VECTORS.astype(np.complex64), "complex64"), (np.ones((4, 3), np.int8), "int8"),
     (np.full((4, 3), np.nan), "not finite"), (np.full((4, 3), 1e300), "not finite")],
)  # fmt: skip
def test_numbers_that_are_no_vectors_are_refused(
    tmp_path: Path, array: np.ndarray, message: str
) -> None:
    np.save(matrix_and_list(tmp_path) / "matrix.npy", array)
    with pytest.raises(SesameError, match=message):
        read_vectors(tmp_path)


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
