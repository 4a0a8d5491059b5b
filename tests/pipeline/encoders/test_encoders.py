"""Encoders: inputs are framed, cut and aligned rightly, and batches do not mix their inputs."""

from pathlib import Path

import numpy as np
import pytest
import torch

from data_prep.errors import SesameError
from data_prep.tokenizers.huggingface import Specials, from_vocabulary, write_folder
from pipeline.encoders import (
    BertEncoder,
    EncodedInputs,
    Encoder,
    SeparateSentences,
    kept_lengths,
    load_encoder,
    random_encoder,
)
from pipeline.models.bert.config import BertConfig

PIECES = ["a", "b", "c", "d", "e", "play", "##ing", "##ed", "##s", ".", ",", "home", "went"]
VOCABULARY = [*Specials().names(), *PIECES]
MODEL = BertConfig(layers=2, hidden=32, heads=2, intermediate=64, max_positions=32)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    library = from_vocabulary(VOCABULARY, lowercase=True, strip_accents=False, specials=Specials())
    write_folder(folder, library, Specials(), None)
    return folder


@pytest.fixture(scope="module")
def encoder(tokenizer: Path) -> Encoder:
    return random_encoder(MODEL, tokenizer, seed=0).eval()


def pieces(encoder: Encoder, tokens: np.ndarray) -> str:
    assert isinstance(encoder, BertEncoder)
    return " ".join(encoder.tokenizer.piece(token) for token in tokens)


def framed(encoder: Encoder, inputs: EncodedInputs) -> list[str]:
    """The pieces of each input."""
    return [pieces(encoder, part) for part in np.split(inputs.tokens, inputs.offsets[1:-1])]


def test_sentences_and_pairs_are_framed(encoder: Encoder) -> None:
    inputs = encoder.encode_texts([("a playing",), ("",)], max_length=32)
    assert framed(encoder, inputs) == ["[CLS] a play ##ing [SEP]", "[CLS] [SEP]"]
    assert inputs.batch(np.array([1, 0])).segments_N.tolist() == [0] * 7
    inputs = encoder.encode_texts([("a", ""), ("b", "c d")], max_length=32)
    assert framed(encoder, inputs) == ["[CLS] a [SEP] [SEP]", "[CLS] b [SEP] c d [SEP]"]
    batch = inputs.batch(np.array([1, 0]))
    assert batch.segments_N.tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 0, 1]
    assert batch.positions_N.tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3]
    assert batch.lengths.tolist() == [6, 4]


def test_words_are_known_by_their_first_piece(encoder: Encoder) -> None:
    sentences = [("a", "playing", "plays", "b"), ("\u200b", "e"), ("went", "home.")]
    inputs = encoder.encode_words([(words,) for words in sentences], max_length=32)
    assert inputs.word_counts.tolist() == [4, 2, 2]
    batch = inputs.batch(np.array([2, 0, 1]))
    firsts = [pieces(encoder, [batch.tokens_N[i]]) for i in batch.word_starts_W.tolist()]
    assert firsts == ["went", "home", "a", "play", "play", "b", "[UNK]", "e"]


def test_pairs_of_words_are_framed_and_fit_as_counted(encoder: Encoder) -> None:
    question, passage = ("went", "playing"), ("a", "plays", "home.", "b")
    inputs = encoder.encode_words([(question, passage)], max_length=32)
    assert pieces(encoder, inputs.tokens) == (
        "[CLS] went play ##ing [SEP] a play ##s home . b [SEP]"
    )
    firsts = inputs.tokens[inputs.word_starts]
    assert pieces(encoder, firsts) == "went play a play home b"
    assert inputs.second.tolist() == [5]
    taken = encoder.word_units([question, passage])
    units = taken.units
    assert taken.may_begin.all()
    assert units.tolist() == [1, 2, 1, 2, 2, 1]
    assert inputs.lengths.tolist() == [units.sum() + encoder.special_units(2)]
    cut = encoder.encode_words([(question, passage)], max_length=9)
    assert pieces(encoder, cut.tokens) == "[CLS] went play ##ing [SEP] a play ##s [SEP]"
    assert (cut.word_counts.tolist(), cut.cut) == ([4], 1)


def test_blocks_hold_every_parameter_once(encoder: Encoder) -> None:
    blocks = encoder.blocks()
    assert len(blocks) == encoder.states
    assert sorted(id(p) for block in blocks for p in block) == sorted(map(id, encoder.parameters()))


def test_long_inputs_are_cut_and_counted(encoder: Encoder) -> None:
    inputs = encoder.encode_texts([("a b c d e a b c",), ("a",)], max_length=8)
    assert framed(encoder, inputs) == ["[CLS] a b c d e a [SEP]", "[CLS] a [SEP]"]
    assert inputs.cut == 1
    inputs = encoder.encode_texts([("a b c d e", "d"), ("a", "a b c d e"), ("a", "b")], 8)
    assert framed(encoder, inputs) == [
        "[CLS] a b c d [SEP] d [SEP]", "[CLS] a [SEP] a b c d [SEP]", "[CLS] a [SEP] b [SEP]",
    ]  # fmt: skip
    assert inputs.cut == 2
    words = encoder.encode_words([(("a", "b", "c", "d", "e", "playing"),), (("a",),)], max_length=8)
    assert words.word_counts.tolist() == [5, 1]
    assert words.cut == 1
    endless = encoder.encode_words([(("." * 50,),)], max_length=8)
    assert (endless.word_counts.tolist(), endless.lengths.tolist()) == ([1], [8])


def test_pairs_lose_pieces_from_the_longer_side_first() -> None:
    def one_by_one(a: int, b: int, room: int) -> list[int]:
        while a + b > room:  # as in google-research/bert
            a, b = (a - 1, b) if a > b else (a, b - 1)
        return [a, b]

    for a in range(12):
        for b in range(12):
            for room in range(2, 20):
                kept = kept_lengths(np.array([[a, b]]), room)
                assert kept.tolist() == [one_by_one(a, b, room)]


def test_many_inputs_are_encoded_as_each_alone(encoder: Encoder) -> None:
    rng = np.random.default_rng(0)

    def words() -> tuple[str, ...]:
        return tuple(rng.choice(["a", "playing", "home.", "\u200b", "....."], rng.integers(1, 9)))

    pairs = [(words(), words()) for _ in range(200)]
    texts = [tuple(" ".join(part) for part in pair) for pair in pairs]
    for encode, inputs in (
        (encoder.encode_texts, texts),
        (encoder.encode_texts, [(a,) for a, _ in texts]),
        (encoder.encode_words, [(a,) for a, _ in pairs]),
        (encoder.encode_words, pairs),
    ):
        together = encode(inputs, 16)
        assert together.lengths.max() == 16
        alone = [encode([each], 16) for each in inputs]
        for field in ("tokens", "second", "word_starts", "lengths", "word_counts"):
            expected = np.concatenate([getattr(each, field) for each in alone])
            assert np.array_equal(getattr(together, field), expected), field
        assert together.cut == sum(each.cut for each in alone) > 0


def test_a_batch_does_not_mix_its_inputs(encoder: Encoder) -> None:
    inputs = encoder.encode_texts(
        [("a b c", ""), ("playing home .", "went"), ("d", "a"), ("e " * 9, "b")], max_length=32
    )
    together = encoder(inputs.batch(np.array([3, 1, 0, 2])))
    assert len(together) == encoder.states == 3
    lengths = inputs.lengths[[3, 1, 0, 2]].tolist()
    for layer, states in enumerate(together):
        assert states.shape[1] == encoder.hidden
        for row, part in zip([3, 1, 0, 2], states.split(lengths), strict=True):
            alone = encoder(inputs.batch(np.array([row])))[layer]
            torch.testing.assert_close(part, alone, atol=1e-6, rtol=1e-5)


def test_sentences_read_apart_are_as_if_each_were_alone(encoder: Encoder) -> None:
    pairs = [("a playing", "b"), ("c", "d e went home"), ("home.", "home.")]
    apart = SeparateSentences(encoder)
    inputs = apart.encode_texts(pairs, max_length=32)
    batch = inputs.batch(np.array([2, 0, 1]))
    alone = encoder.encode_texts([(text,) for i in (2, 0, 1) for text in pairs[i]], max_length=32)
    torch.testing.assert_close(apart(batch), encoder(alone.batch(np.arange(6))))
    assert batch.second.tolist() == alone.lengths[::2].tolist()
    assert batch.lengths.tolist() == (alone.lengths[::2] + alone.lengths[1::2]).tolist()


def test_last_states_are_those_of_the_given_units(encoder: Encoder) -> None:
    inputs = encoder.encode_texts([("a b c", "d"), ("d", "a"), ("e", "went home"), ("", "")], 32)
    batch = inputs.batch(np.array([1, 2, 0, 3]))
    starts = np.cumsum(batch.lengths) - batch.lengths
    assert batch.firsts_E.tolist() == starts.tolist()
    whole = encoder(batch)[-1]
    for rows in (batch.firsts_E, torch.tensor([len(whole) - 1, 0, 2])):
        torch.testing.assert_close(encoder.last_states(batch, rows), whole[rows])


def test_random_weights_follow_the_seed_alone(tokenizer: Path) -> None:
    def weights(seed: int) -> torch.Tensor:
        torch.rand(seed + 3)  # the state of torch's own generator must not matter
        return torch.cat([p.flatten() for p in random_encoder(MODEL, tokenizer, seed).parameters()])

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_random_weights_touch_no_gpu(tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copying the state of every GPU takes memory on all of them, also those of other jobs."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda *_: pytest.fail("a GPU was touched"))
    random_encoder(MODEL, tokenizer, 1)


def test_a_longer_input_than_positions_is_refused(encoder: Encoder) -> None:
    with pytest.raises(SesameError, match=r"finetune\.max_seq_length=64: .* 32 positions"):
        encoder.encode_texts([("a",)], max_length=64)


def test_a_hugging_face_folder_gives_its_own_hidden_states(tmp_path: Path, tokenizer: Path) -> None:
    from transformers import AutoTokenizer, BertModel
    from transformers import BertConfig as TheirConfig

    torch.manual_seed(0)
    config = TheirConfig(
        vocab_size=len(VOCABULARY), hidden_size=32, num_hidden_layers=3, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=32,
    )  # fmt: skip
    theirs = BertModel(config).eval()
    theirs.save_pretrained(tmp_path)
    their_tokenizer = AutoTokenizer.from_pretrained(tokenizer)
    their_tokenizer.save_pretrained(tmp_path)

    texts = [("a playing b .", "went home"), ("c", "d e , played")]
    ours = load_encoder(tmp_path).eval()
    inputs = ours.encode_texts(texts, max_length=32)
    padded = their_tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        reference = theirs(**padded, output_hidden_states=True).hidden_states
        states = ours(inputs.batch(np.arange(2)))
    real = padded["attention_mask"].bool()
    assert torch.equal(padded["input_ids"][real], torch.from_numpy(inputs.tokens).long())
    for mine, expected in zip(states, reference, strict=True):
        torch.testing.assert_close(mine, expected[real], atol=1e-5, rtol=1e-4)
