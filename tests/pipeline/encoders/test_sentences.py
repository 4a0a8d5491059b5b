"""A sentence's vector is its pooled units, alone or beside others, in memory or in a file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from data_prep.errors import UsageError
from data_prep.vectors.table import VectorTable
from pipeline.commands.main import run
from pipeline.encoders import Encoder, StaticEncoder, random_encoder
from pipeline.encoders.embed import Layers
from pipeline.encoders.sentences import embed_sentence_file, embed_sentences
from pipeline.models.bert.config import BertConfig
from tests.pipeline.toy_tokenizer import write_toy_tokenizer

TEXTS = ["a rose is a rose", "", "they rose", "rose " * 40]
BERT = BertConfig(layers=2, hidden=32, heads=2, intermediate=64, max_positions=32)
POOLED = {
    "mean": lambda x: x.mean(0), "first": lambda x: x[0], "max": lambda x: x.max(0)
}  # fmt: skip


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    folder = write_toy_tokenizer(tmp_path_factory.mktemp("bert"), ["a", "rose", "is", "they"])
    return random_encoder(BERT, folder, seed=0).eval()


@torch.inference_mode()
@pytest.mark.parametrize("pooling", list(POOLED))
@pytest.mark.parametrize("layers", ["top", "all", "mix"])
def test_it_is_the_pooled_units_of_the_text_alone(bert: Encoder, pooling: str, layers: str) -> None:
    together = bert.embed(TEXTS, layers, "sentence", pooling)
    for text, vector in zip(TEXTS, together, strict=True):
        inputs = bert.encode_texts([(text,)], 32)
        states = Layers(layers).of(bert(inputs.batch(np.arange(1)))).numpy()
        np.testing.assert_allclose(vector, POOLED[pooling](states), atol=1e-5)


def test_a_file_holds_what_the_call_gives(bert: Encoder, tmp_path: Path) -> None:
    (tmp_path / "s.txt").write_text("\n".join(TEXTS) + "\n")
    expected = embed_sentences(bert, TEXTS)
    for name in ("v.npy", "v.safetensors"):
        counts = embed_sentence_file(
            bert, tmp_path / "s.txt", tmp_path / name, Layers("top"), "mean"
        )
        assert counts == (4, 1), "the last text is truncated"
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), expected)
    stored = load_file(tmp_path / "v.safetensors")
    assert stored.keys() == {"vectors"}
    np.testing.assert_array_equal(stored["vectors"], expected)


def test_words_are_the_units_of_static_vectors() -> None:
    table = np.array([[1, 2], [3, 6]], np.float32)
    encoder = StaticEncoder(VectorTable(["a", "rose"], table))
    [vector, nothing] = encoder.embed(["A rose", ""], unit="sentence")
    assert (vector.tolist(), nothing.tolist()) == ([2, 4], [0, 0])
    assert embed_sentences(encoder, []).shape == (0, 2)


def test_the_command_writes_sentences_and_answers_mistakes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("vectors.txt").write_text("a 1 2\nrose 3 6\n")
    Path("s.txt").write_text("a rose\nrose\n")
    asked = ["embed", "encoder=./vectors.txt", "input=s.txt", "output=v.npy"]
    assert run([*asked, "unit=sentence", "pooling=max"]) == 0
    assert np.load("v.npy").tolist() == [[3, 6], [3, 6]]
    capfd.readouterr()
    for wrong, says in {
        ("unit=page",): "unit=page: must be one of word, sentence",
        ("pooling=max",): "pooling=max: needs unit=sentence",
        ("unit=sentence", "pooling=last"): "pooling=last: must be one of mean, first, max",
    }.items():
        assert run([*asked, *wrong]) == 2
        assert says in capfd.readouterr().err
    with pytest.raises(UsageError, match="unit=page: must be word or sentence"):
        StaticEncoder(VectorTable(["a"], np.ones((1, 2), np.float32))).embed(["a"], unit="page")


@pytest.mark.parametrize("unit", ["word", "sentence"])
@pytest.mark.parametrize("sentence", ["they \ud83d", ["they", "\ud83d"], ["they", 3], 3, None])
def test_what_is_no_text_is_refused(bert: Encoder, sentence: Any, unit: str) -> None:
    with pytest.raises(UsageError, match=r"sentence 1 \(counted from 0\) is not a valid text"):
        bert.embed(["they rose", sentence], unit=unit)
    with pytest.raises(UsageError, match=r"for one sentence, \[sentence\]"):
        bert.embed("they rose", unit=unit)
