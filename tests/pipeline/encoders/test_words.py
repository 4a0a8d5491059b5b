"""Encoders of words: static vectors, and several encoders side by side."""

from pathlib import Path

import numpy as np
import pytest
import torch

from data_prep.tokenizers.huggingface import Specials, from_vocabulary, write_folder
from data_prep.vectors.table import VectorTable
from pipeline.encoders import Concatenation, Encoder, StaticEncoder, load_encoder, random_encoder
from pipeline.models.bert.config import BertConfig

MODEL = BertConfig(layers=2, hidden=16, heads=2, intermediate=32, max_positions=32)
TABLE = VectorTable(["good", "Film", "film", "."], np.arange(1, 13, dtype=np.float32).reshape(4, 3))


def bert(folder: Path) -> Encoder:
    vocabulary = [*Specials().names(), "go", "##od", "film", "."]
    library = from_vocabulary(vocabulary, lowercase=True, strip_accents=False, specials=Specials())
    write_folder(folder, library, Specials(), None)
    return random_encoder(MODEL, folder, seed=0).eval()


def test_a_word_has_its_vector_wherever_it_stands() -> None:
    encoder = StaticEncoder(TABLE)
    inputs = encoder.encode_texts([("Good film.",), ("Film strange",)], max_length=8)
    (states,) = encoder(inputs.batch(np.array([1, 0])))
    film, good, dot = TABLE.vectors[2], TABLE.vectors[0], TABLE.vectors[3]
    expected = [TABLE.vectors[1], np.zeros(3), good, film, dot]  # Film as it stands, Good as good
    np.testing.assert_array_equal(states.detach().numpy(), np.stack(expected))
    assert encoder.knows("GOOD") and not encoder.knows("strange")


def test_words_met_later_change_no_token_and_no_trained_vector() -> None:
    encoder = StaticEncoder(TABLE)
    first = encoder.encode_words([(("film", "."),)], max_length=8)
    with torch.no_grad():
        encoder.vectors += 1
    encoder.encode_words([(("good", "film"),)], max_length=8)
    (states,) = encoder(first.batch(np.array([0])))
    np.testing.assert_array_equal(states.detach().numpy(), TABLE.vectors[2:] + 1)


def test_long_inputs_lose_words_from_the_longer_side() -> None:
    encoder = StaticEncoder(TABLE)
    inputs = encoder.encode_texts([("good " * 6, "film ."), ("good", "film")], max_length=4)
    assert inputs.lengths.tolist() == [4, 2]
    assert inputs.second.tolist() == [2, 1]
    assert inputs.cut == 1
    empty = encoder.encode_texts([("",)], max_length=4)
    assert empty.lengths.tolist() == [1]


@pytest.mark.parametrize("texts", [[("good film .",), ("film",)], [("good", "film ."), ("a", "b")]])
def test_members_stand_side_by_side(texts: list[tuple[str, ...]], tmp_path: Path) -> None:
    static, pieces = StaticEncoder(TABLE), bert(tmp_path)
    both = Concatenation([static, pieces])
    assert (both.hidden, both.states) == (3 + 16, 3)
    words = [tuple(tuple(text.split()) for text in pair) for pair in texts]
    with torch.no_grad():
        states = both(both.encode_texts(texts, max_length=16).batch(np.array([1, 0])))
        batch = pieces.encode_words(words, max_length=16).batch(np.array([1, 0]))
        own = pieces(batch)
        (vectors,) = static(static.encode_texts(texts, max_length=16).batch(np.array([1, 0])))
    for layer in range(3):
        torch.testing.assert_close(states[layer][:, :3], vectors)
        torch.testing.assert_close(states[layer][:, 3:], own[layer][batch.word_starts_W])


def test_all_members_keep_the_same_words(tmp_path: Path) -> None:
    both = Concatenation([StaticEncoder(TABLE), bert(tmp_path)])
    inputs = both.encode_words([(("good",) * 10,), (("film",),)], max_length=8)
    assert inputs.word_counts.tolist() == [3, 1]  # six pieces and a frame of two
    assert inputs.cut == 1
    batch = inputs.batch(np.array([0, 1])).to(torch.device("cpu"))
    assert both(batch)[0].shape == (4, 19)


def test_folders_of_vectors_are_known_by_their_files(tmp_path: Path) -> None:
    TABLE.write(tmp_path)
    encoder = load_encoder(tmp_path)
    assert isinstance(encoder, StaticEncoder)
    assert encoder.knows("film")
