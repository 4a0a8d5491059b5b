"""Contextual vectors: the encoder's own, sentence by sentence, in every form that can be asked."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from data_prep.errors import SesameError, UsageError
from data_prep.tokenizers.huggingface import Specials, from_vocabulary, write_folder
from pipeline import load_encoder as load_reference
from pipeline.commands.main import run
from pipeline.encoders import Encoder, load_encoder, random_encoder
from pipeline.encoders import embed as embedding
from pipeline.encoders.embed import Layers, embed, embed_file, lines_of
from pipeline.encoders.sentences import embed_sentence_file
from pipeline.models.bert.config import BertConfig
from pipeline.models.elmo.allennlp import write_allennlp
from pipeline.models.elmo.config import ElmoConfig
from pipeline.models.elmo.network import Elmo

SENTENCES = [["a", "rose", "is", "a", "rose"], [], ["rose"], ["they", "rose", "early"] * 3]
ELMO = ElmoConfig(cell=24, projection=8, character_dim=5, filters=[[1, 4], [2, 6]])
BERT = BertConfig(layers=2, hidden=32, heads=2, intermediate=64, max_positions=32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("elmo")
    torch.manual_seed(0)
    write_allennlp(made, Elmo(ELMO))
    return made


@pytest.fixture(scope="module")
def elmo(folder: Path) -> Encoder:
    return load_encoder(folder).eval()


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    made = tmp_path_factory.mktemp("bert")
    pieces = [*Specials().names(), "a", "rose", "is", "they", "ear", "##ly"]
    library = from_vocabulary(pieces, lowercase=True, strip_accents=False, specials=Specials())
    write_folder(made, library, Specials(), None)
    return random_encoder(BERT, made, seed=0).eval()


@pytest.mark.parametrize("kind", ["elmo", "bert"])
def test_every_word_has_every_layer_whatever_else_is_asked(
    kind: str, request: pytest.FixtureRequest
) -> None:
    encoder: Encoder = request.getfixturevalue(kind)
    together = embed(encoder, SENTENCES)
    for words, vectors in zip(SENTENCES, together, strict=True):
        assert vectors.shape == (len(words), encoder.states, encoder.hidden)
        if words:
            np.testing.assert_allclose(vectors, embed(encoder, [words])[0], atol=1e-6)
    inputs = encoder.encode_words([(tuple(SENTENCES[0]),)], 32)
    batch = inputs.batch(np.array([0]))
    with torch.no_grad():
        own = torch.stack(encoder(batch), 1)[batch.word_starts_W].numpy()
    np.testing.assert_allclose(together[0], own, atol=1e-6)
    assert not np.allclose(together[0][1, -1], together[3][1, -1]), "a rose that rose is another"


@pytest.mark.parametrize("kind", ["elmo", "bert"])
@pytest.mark.parametrize("choice", ["all", "last", "mix"])
def test_sentences_without_words_have_no_vectors(
    kind: str, choice: str, request: pytest.FixtureRequest
) -> None:
    encoder: Encoder = request.getfixturevalue(kind)
    shape = Layers(choice).shape(encoder)
    given: list[list[str | list[str]]] = [[], [[]], [""], [" \t"], [[], ""], [[], "a"], ["a", ""]]
    for sentences in given:
        vectors = embed(encoder, sentences, choice)
        counts = [int(sentence == "a") for sentence in sentences]
        assert [each.shape for each in vectors] == [(count, *shape) for count in counts]


def test_the_top_and_mixes_follow_from_all_layers(elmo: Encoder) -> None:
    layers = embed(elmo, SENTENCES)[3]
    for name in ("last", "top"):  # the second is AllenNLP's word
        np.testing.assert_allclose(embed(elmo, SENTENCES, Layers(name))[3], layers[:, -1])
    mixed = embed(elmo, SENTENCES, Layers("mix", (0.5, 0.0, 2.0), gamma=3.0))[3]
    expected = 3 * (0.5 * layers[:, 0] + 2 * layers[:, 2])
    np.testing.assert_allclose(mixed, expected, atol=1e-6)
    mean = embed(elmo, SENTENCES, Layers("mix"))[3]
    np.testing.assert_allclose(mean, layers.mean(1), atol=1e-6)


def test_python_loads_what_the_command_line_names(folder: Path, tmp_path: Path) -> None:
    encoder = load_reference(folder, tmp_path)
    strings, words = (
        encoder.embed(["A rose, too."]),
        encoder.embed([["A", "rose", ",", "too", "."]]),
    )
    assert strings[0].shape == (5, encoder.states, encoder.hidden)
    np.testing.assert_array_equal(strings[0], words[0])
    np.testing.assert_array_equal(encoder.embed(["A rose, too."], "last")[0], words[0][:, -1])
    (tmp_path / "vectors.txt").write_text("a 1 2\nrose 3 4\n")
    static = load_reference(tmp_path / "vectors.txt", tmp_path / "store")
    assert static.embed(["A rose"], "last")[0].tolist() == [[1, 2], [3, 4]]
    with pytest.raises(UsageError, match="encoder=nobody: no run"):
        load_reference("nobody", tmp_path)
    with pytest.raises(UsageError, match="layers=first: must be one of all, last, mix"):
        encoder.embed(["A rose"], "first")


def test_importing_the_package_imports_no_torch() -> None:
    said = "import sys; from pipeline import load_encoder; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", said]).returncode == 0


@pytest.mark.parametrize("choice", ["all", "mix"])
def test_files_hold_what_the_call_gives(elmo: Encoder, tmp_path: Path, choice: str) -> None:
    text = tmp_path / "sentences.txt"
    text.write_text("".join(" ".join(words) + "\r\n" for words in SENTENCES))
    expected = np.concatenate(embed(elmo, SENTENCES, Layers(choice)))
    assert embed_file(elmo, text, tmp_path / "v.safetensors", Layers(choice)) == 15
    embed_file(elmo, text, tmp_path / "v.npy", Layers(choice))
    stored = load_file(tmp_path / "v.safetensors")
    assert stored["offsets"].tolist() == [0, 5, 5, 6, 15]
    assert np.load(tmp_path / "v.offsets.npy").tolist() == [0, 5, 5, 6, 15]
    np.testing.assert_array_equal(stored["vectors"], expected)
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), expected)
    assert {path.name for path in tmp_path.iterdir()} == {
        "sentences.txt", "v.safetensors", "v.npy", "v.offsets.npy",
    }  # fmt: skip


def test_what_has_no_place_is_refused(bert: Encoder, tmp_path: Path) -> None:
    with pytest.raises(SesameError, match=r"sentence 2 of the input: its 40 words .* 32 positions"):
        embed(bert, [["a"], ["rose"] * 40])
    with pytest.raises(UsageError, match="weights: 2 are given, but the encoder has 3 layers"):
        embed(bert, [["a"]], Layers("mix", (0.5, 0.5)))
    (tmp_path / "bad.txt").write_bytes(b"fine\nbad \xff byte\n")
    with pytest.raises(SesameError, match=r"bad\.txt, line 2: not UTF-8 at byte 4"):
        list(lines_of(tmp_path / "bad.txt"))
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(UsageError, match="has no words"):
        list(lines_of(tmp_path / "empty.txt"))


def test_the_command_takes_a_folder_and_answers_mistakes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sentences.txt").write_text("a rose\n")
    asked = ["embed", f"encoder={folder}", "input=sentences.txt"]
    assert run([*asked, "output=v.npy", "layers=mix", "weights=0.2,0.3,0.5", "gamma=2"]) == 0
    assert np.load("v.npy").shape == (2, 16)
    assert run(asked) == 0
    assert load_file("vectors.safetensors")["vectors"].shape == (2, 3, 16)
    capfd.readouterr()
    for wrong, says in {
        "input=none.txt": "input=none.txt: give a file",
        "output=v.txt": "output=v.txt: must end in .safetensors or .npy",
        "output=none/v.npy": "there is no folder none",
        "layers=first": "layers=first: must be one of all, last, mix",
        "gamma=2": "weights and gamma need layers=mix",
        "encoder=nobody": "encoder=nobody: no run",
    }.items():
        assert run([*asked, wrong]) == 2
        assert says in capfd.readouterr().err
    assert run([*asked, "layers=mix", "weights=a,b"]) == 2
    assert "weights=a,b: must be numbers" in capfd.readouterr().err


@pytest.mark.parametrize("unit", ["word", "sentence"])
def test_a_file_is_embedded_in_bounded_memory(
    unit: str, bert: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All lines and their tokens were held; now only a chunk of them is."""
    text = tmp_path / "s.txt"
    text.write_bytes("\n".join(["a rose", "", "they rose is a", ""] * 50).encode() + b"\r\na\rrose")

    def written(name: str) -> np.ndarray:
        out, layers = tmp_path / name, Layers("last")
        if unit == "word":
            embed_file(bert, text, out, layers)
        else:
            embed_sentence_file(bert, text, out, layers, "mean")
        return np.load(out)

    together = written("together.npy")
    asked: list[int] = []

    def counted(encode: Any) -> Any:
        def counting(inputs: Any, max_length: int) -> Any:
            asked.append(len(inputs))
            return encode(inputs, max_length)

        return counting

    for name in ("encode_words", "encode_texts"):
        monkeypatch.setattr(bert, name, counted(getattr(bert, name)))
    monkeypatch.setattr(embedding, "CHUNK_CHARACTERS", 20)
    np.testing.assert_allclose(written("chunks.npy"), together, atol=1e-6)
    assert len(together) == (302 if unit == "word" else 202)
    assert max(asked) <= 6 and len(asked) > 30


def test_a_sentence_that_is_too_long_has_its_number_in_the_file(
    bert: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "s.txt").write_text("a rose\n" * 20 + "a " * 99)
    monkeypatch.setattr(embedding, "CHUNK_CHARACTERS", 20)
    with pytest.raises(SesameError, match="sentence 21 of the input: its 99 words do not fit"):
        embed_file(bert, tmp_path / "s.txt", tmp_path / "v.npy", Layers("last"))
    assert not (tmp_path / "v.npy").exists()
