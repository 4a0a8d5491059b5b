"""ELMo as an encoder: framing, cuts, and vectors that depend on nothing but the sentence."""

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from data_prep.tokenizers.characters import BEGIN_SENTENCE_SYMBOL, END_SENTENCE_SYMBOL
from data_prep.tokenizers.huggingface import write_folder
from data_prep.tokenizers.words import SPECIALS, from_words
from pipeline.encoders import random_encoder
from pipeline.encoders.elmo import ElmoEncoder
from pipeline.models.elmo.config import ElmoConfig
from pipeline.tasks.config import FinetuneConfig, TaskConfig
from pipeline.tasks.examples import Example
from pipeline.tasks.finetuning import finetune
from pipeline.tasks.splits import Splits

MODEL = ElmoConfig(cell=24, projection=8, character_dim=5, filters=[[1, 4], [2, 6]])


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> ElmoEncoder:
    folder = tmp_path_factory.mktemp("words")
    library = from_words(["a", "b"], lowercase=True, strip_accents=False, spaced=False)
    write_folder(folder, library, SPECIALS, None)
    made = random_encoder(MODEL, folder, seed=0).eval()
    assert isinstance(made, ElmoEncoder)
    return made


def words(characters: np.ndarray, numbers: np.ndarray) -> str:
    """The words of these tokens, from their characters."""
    marks = {BEGIN_SENTENCE_SYMBOL: "<S>", END_SENTENCE_SYMBOL: "</S>"}
    rows = (characters[numbers].astype(int) - 1).tolist()
    return " ".join(
        marks.get(row[1]) or bytes(symbol for symbol in row if symbol < 256).decode()
        for row in rows
    )


def test_sentences_and_pairs_are_framed_each(encoder: ElmoEncoder) -> None:
    inputs = encoder.encode_texts([("A cat, b.",), ("",)], max_length=32)
    parts = np.split(inputs.tokens, inputs.offsets[1:-1])
    assert [words(inputs.characters, part) for part in parts] == [
        "<S> a cat , b . </S>",
        "<S> </S>",
    ]
    assert inputs.word_counts.tolist() == [5, 0]
    inputs = encoder.encode_texts([("", "a"), ("b", "c d")], max_length=32)
    parts = np.split(inputs.tokens, inputs.offsets[1:-1])
    assert [words(inputs.characters, part) for part in parts] == [
        "<S> </S> <S> a </S>",
        "<S> b </S> <S> c d </S>",
    ]
    assert inputs.batch(np.array([1])).segments_N.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert inputs.word_counts.tolist() == [1, 3]
    assert inputs.word_starts.tolist() == [3, 1, 4, 5]


def test_words_stay_whole_and_long_inputs_are_cut_and_counted(encoder: ElmoEncoder) -> None:
    inputs = encoder.encode_words([(("Don't,stop", "now"),), (("a", "b", "c", "d"),)], max_length=5)
    batch = inputs.batch(np.array([1, 0]))
    tokens = batch.tokens_N[batch.word_starts_W].numpy()
    found = [words(batch.characters_UC, token) for token in tokens[:, None]]
    assert found == ["a", "b", "c", "don't,stop", "now"]
    assert inputs.cut == 1
    pair = encoder.encode_texts([("a b c d e", "a")], max_length=8)
    assert words(pair.characters, pair.tokens) == "<S> a b c </S> <S> a </S>"


def test_a_sentence_has_the_same_vectors_alone_among_others_and_in_a_pair(
    encoder: ElmoEncoder,
) -> None:
    texts = [
        ("a b c", ""), ("playing home .", "went b"), ("", "d"), ("e " * 40, "a"), ("went b", "c"),
    ]  # fmt: skip
    inputs = encoder.encode_texts(texts, max_length=64)
    rows = np.array([3, 1, 0, 2, 4])
    together = encoder(inputs.batch(rows))
    assert len(together) == encoder.states == 3
    for layer, states in enumerate(together):
        assert states.shape[1] == encoder.hidden == 16
        parts = states.split(inputs.lengths[rows].tolist())
        for row, part in zip(rows, parts, strict=True):
            alone = encoder(inputs.batch(np.array([row])))[layer]
            torch.testing.assert_close(part, alone, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(parts[1][5:], parts[4][:4], atol=1e-6, rtol=1e-5)


def test_vectors_come_from_context_on_both_sides(encoder: ElmoEncoder) -> None:
    inputs = encoder.encode_texts([("a b c",), ("x b c",), ("a b z",)], max_length=8)
    lowest, *_, top = (state.view(3, 5, 2, 8) for state in encoder(inputs.batch(np.arange(3))))
    assert torch.equal(lowest[:, 2, 0], lowest[:, 2, 1]) and torch.equal(lowest[0, 2], lowest[1, 2])
    assert torch.equal(top[0, 2, 0], top[2, 2, 0]) and not torch.equal(top[0, 2, 0], top[1, 2, 0])
    assert torch.equal(top[0, 2, 1], top[1, 2, 1]) and not torch.equal(top[0, 2, 1], top[2, 2, 1])


def test_a_word_met_later_changes_no_number_before(encoder: ElmoEncoder) -> None:
    first = encoder.encode_texts([("some unseen words",)], max_length=8)
    before = encoder(first.batch(np.array([0])))[-1]
    encoder.encode_texts([("many others come",)], max_length=8)
    assert torch.equal(encoder(first.batch(np.array([0])))[-1], before)


def test_the_encoder_keeps_no_words(encoder: ElmoEncoder) -> None:
    """A server or a long file has ever new ones."""
    held = []
    for batch in range(3):
        text = " ".join(f"word{batch}{number}" for number in range(500))
        inputs = encoder.encode_texts([(text,)], max_length=600)
        encoder(inputs.batch(np.array([0])))
        held.append(len(pickle.dumps(encoder)))
    assert len(set(held)) == 1


def test_random_weights_follow_the_seed(tmp_path: Path) -> None:
    first, again, other = (random_encoder(MODEL, tmp_path, seed) for seed in (1, 1, 2))
    weights = [torch.cat([p.flatten() for p in e.parameters()]) for e in (first, again, other)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def tagged(rng: np.random.Generator) -> Example:
    """Cats are tagged."""
    chosen = tuple(str(word) for word in rng.choice(["the", "cat", "sat", "on"], 6))
    return Example(chosen, tuple("B-X" if word == "cat" else "O" for word in chosen), "", 0)


@pytest.mark.parametrize(("mode", "lr"), [("frozen", 0.1), ("full", 3e-2)])
def test_tasks_learn_on_top_of_it_frozen_with_a_mix_and_whole(
    tmp_path: Path, mode: str, lr: float
) -> None:
    rng = np.random.default_rng(0)
    splits = Splits(*([tagged(rng) for _ in range(n)] for n in (64, 16, 32)), ["O", "B-X"])
    task = TaskConfig(name="toy", kind="tag", reader="conll", metric="entity_f1")
    config = FinetuneConfig(
        lr=lr, epochs=10, batch_size=16, mode=mode, layers="mix", dropout=0.0, accelerator="cpu"
    )
    encoder = random_encoder(replace(MODEL, dropout=0.0), tmp_path, seed=0)
    for weights in encoder.parameters():
        weights.data *= 4  # vectors that a few steps can tell apart
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    outcome = finetune(encoder, splits, task, config)
    same = [torch.equal(value, before[name]) for name, value in encoder.state_dict().items()]
    assert all(same) if mode == "frozen" else not any(same)
    assert outcome.scores["entity_f1"] > 0.9  # by chance 0.25
    assert outcome.mix is not None
    assert sum(outcome.mix["weights"]) == pytest.approx(1)
