"""Pieces downstream are those of the tokenizer on the whole text; words are found by characters."""

from collections.abc import Callable
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from tokenizers import decoders, models, pre_tokenizers, trainers

from data_prep.config import TokenizerConfig
from data_prep.text.words import TextWords, split_like_bert
from data_prep.tokenizers import Tokenizer
from data_prep.tokenizers.build import build_tokenizer
from data_prep.tokenizers.huggingface import Specials, write_folder
from pipeline.encoders import BertEncoder, Concatenation, EncodedInputs, random_encoder
from pipeline.encoders.embed import embed
from pipeline.inference.senses.compare import occurrence_vectors
from pipeline.inference.senses.occurrences import read_occurrences
from pipeline.models.bert.config import BertConfig
from pipeline.tasks.answers import TagAnswers
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import Example
from pipeline.tasks.span_answers import SpanAnswers
from pipeline.tasks.span_windows import encode_spans
from tests.data_prep.tokenizer_texts import KINDS, NASTY, SENTENCES, TEXTS, write_corpus

# The last is as RoBERTa's: a space is part of the piece after it, and the first word has none.
EVERY = (*KINDS, "byte level")
MODEL = BertConfig(layers=1, hidden=16, heads=1, intermediate=32, max_positions=512)
TASK = TaskConfig(kind="span", reader="squad", metric="f1", stride=12, max_question=64)
PASSAGES = [
    "(the) fox's “den” (near the mynning), costs 1,024 [name]s… or not?",
    "我能吞下玻璃而不伤身体。The fox; “dog”—lazy!",
    *SENTENCES,
]


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], BertEncoder]:
    shards = tmp_path_factory.mktemp("shards")
    write_corpus(shards)
    made: dict[str, BertEncoder] = {}

    def build(name: str) -> BertEncoder:
        if name not in made:
            folder = tmp_path_factory.mktemp("tokenizer")
            if name in KINDS:
                build_tokenizer(shards, folder, TokenizerConfig(**KINDS[name], workers=1))
            else:
                write_folder(folder, byte_level(), Specials(), None)
            encoder = random_encoder(MODEL, folder, seed=0).eval()
            assert isinstance(encoder, BertEncoder)
            made[name] = encoder
        return made[name]

    return build


def byte_level() -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=list(Specials().names()), initial_alphabet=alphabet
    )
    library.train_from_iterator(SENTENCES * 3, trainer)
    return library


def whole(tokenizer: Tokenizer, text: str) -> list[int]:
    """What the library makes of a whole text, as in pretraining."""
    return tokenizer.library.encode(text, add_special_tokens=False).ids


def rows_of(inputs: EncodedInputs) -> list[list[int]]:
    return [part.tolist() for part in np.split(inputs.tokens, inputs.offsets[1:-1])]


@pytest.mark.parametrize("name", EVERY)
def test_questions_and_passages_have_the_pieces_of_the_whole(
    encoders: Callable[[str], BertEncoder], name: str
) -> None:
    encoder = encoders(name)
    own = encoder.tokenizer
    for passage in PASSAGES:
        question = "(“the”?)"
        example = Example((question, passage), ("x",), "", 0, "", 0)
        one = encode_spans(encoder, [example], TASK, max_length=400)
        first, second = whole(own, question), whole(own, passage)
        assert rows_of(one.inputs) == [[own.cls, *first, own.sep, *second, own.sep]]
        small = encode_spans(encoder, [example], TASK, max_length=len(first) + 3 + 20)
        joined: list[int] = []  # windows are runs of the passage's pieces, and hold them all
        place = 0
        for row in rows_of(small.inputs):
            run = row[len(first) + 2 : -1]
            assert len(run) <= 20
            place = next(n for n in range(place, len(second)) if second[n : n + len(run)] == run)
            assert place <= len(joined)
            joined[place:] = run
        assert joined == second


@pytest.mark.parametrize("name", EVERY)
def test_the_gold_span_leads_back_to_its_characters(
    encoders: Callable[[str], BertEncoder], name: str
) -> None:
    encoder = encoders(name)
    passage = "(the) fox's den (near the mynning), costs 1,024 dogs or not?"
    for answer in ("the", "fox's den", "near the mynning", "1,024", "not"):
        start = passage.index(answer)
        example = Example(("the?", passage), (answer,), "", 0, "", start)
        data = encode_spans(encoder, [example], TASK, max_length=400)
        [window] = data.windows
        marked = [set(np.flatnonzero(data.gold[:, side])) for side in (0, 1)]
        begins = [n for n, unit in enumerate(window.units) if unit in marked[0]]
        ends = [n for n, unit in enumerate(window.units) if unit in marked[1]]
        spans = {
            passage[window.characters[a, 0] : window.characters[b, 1]]
            for a in begins
            for b in ends
            if a <= b
        }
        assert answer in spans, "words that share a piece cannot be told apart, others can"


def test_an_answer_inside_a_word_can_be_learnt_and_predicted(
    encoders: Callable[[str], BertEncoder],
) -> None:
    passage = "(the) fox jumps 5km, the 20lazydog costs €7 or café5 å2b."
    reached = set()
    for name in EVERY:
        encoder = encoders(name)
        pieces = {
            passage[a:b].strip() for a, b in encoder.tokenizer.library.encode(passage).offsets
        }
        for answer in ("5", "km", "20", "7", "2"):
            start = passage.index(answer)
            example = Example(("the?", passage), (answer,), "", 0, "", start)
            data = encode_spans(encoder, [example], TASK, max_length=400)
            outputs = np.where(data.gold, 5.0, 0.0).astype(np.float32)
            [guess] = SpanAnswers(TASK).decode(outputs, data)
            assert answer in str(guess.answer)
            if answer in pieces:
                assert guess.answer == answer
                reached.add((name, answer))
    assert {name for name, answer in reached if answer == "5"} == set(EVERY)


@settings(max_examples=40, deadline=None)
@given(texts=TEXTS)
@hypothesis.example(texts=["\x08 \x08"])
@pytest.mark.parametrize("name", EVERY)
def test_windows_of_any_text_hold_its_pieces(
    encoders: Callable[[str], BertEncoder], name: str, texts: list[str]
) -> None:
    encoder = encoders(name)
    own = encoder.tokenizer
    for passage in (text for text in texts if text.strip()):
        example = Example(("the?", passage), ("x",), "", 0, "", 0)
        question, pieces = whole(own, "the?"), whole(own, passage)
        one = encode_spans(encoder, [example], TASK, max_length=512)
        if not pieces:  # control characters only: unknown words, at least one
            pieces = [own.unk] * (len(one.inputs.tokens) - len(question) - 3)
            assert pieces
        assert rows_of(one.inputs) == [[own.cls, *question, own.sep, *pieces, own.sep]]
        small = encode_spans(encoder, [example], TASK, max_length=len(question) + 3 + 12)
        starts = {int(start) for window in small.windows for start in window.characters[:, 0]}
        assert starts == {int(start) for start in one.windows[0].characters[:, 0]}
        for window in small.windows:
            assert (np.diff(window.characters.ravel()) >= 0).all()


def check_words(encoder: BertEncoder, inputs: EncodedInputs, row: int, words: TextWords) -> None:
    """Every word's first unit has a character of the word, or is the mark of the space before."""
    encoded = encoder.tokenizer.library.encode(words.text, add_special_tokens=False)
    starts = np.split(inputs.word_starts, inputs.word_offsets[1:-1])[row] - 1  # [CLS]
    covered = {n for begin, end in encoded.offsets for n in range(begin, end)}
    for place, (begin, end) in zip(starts.tolist(), words.characters.tolist(), strict=True):
        if covered & set(range(begin, end)):
            first, last = encoded.offsets[place]
            assert first < end and (last > begin or not words.text[last:begin].strip())


@settings(max_examples=40, deadline=None)
@given(texts=TEXTS)
@pytest.mark.parametrize("name", [name for name in EVERY if name != "wordpiece"])
def test_words_of_any_text_are_found_among_its_pieces(
    encoders: Callable[[str], BertEncoder], name: str, texts: list[str]
) -> None:
    encoder = encoders(name)
    split = [words for text in texts if (words := TextWords.of(text))]
    inputs = encoder.encode_words([(words,) for words in split], 512)
    assert inputs.word_counts.tolist() == [len(words) for words in split]
    taken = encoder.word_units(split)
    assert taken.units.sum() == inputs.lengths.sum() - 2 * len(split)
    for row, words in enumerate(split):
        pieces = whole(encoder.tokenizer, words.text)
        assert rows_of(inputs)[row][1:-1] == (pieces or [encoder.tokenizer.unk])
        check_words(encoder, inputs, row, words)


@pytest.mark.parametrize("name", EVERY)
def test_strings_words_and_concatenations_are_read_as_wholes(
    encoders: Callable[[str], BertEncoder], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = encoders(name)
    own = encoder.tokenizer
    read: list[list[int]] = []
    forward = encoder.forward

    def listen(batch):  # type: ignore[no-untyped-def]
        read.extend(part.tolist() for part in batch.tokens_N.split(batch.lengths.tolist()))
        return forward(batch)

    monkeypatch.setattr(encoder, "forward", listen)
    for text in PASSAGES:
        read.clear()
        [vectors] = embed(encoder, [text], "top")
        assert len(vectors) == len(split_like_bert(text)[0])
        assert read == [[own.cls, *whole(own, text), own.sep]]
        read.clear()
        both = Concatenation([encoder, encoder])
        joined = both.encode_texts([(text, text)], 512)
        both(joined.batch(np.array([0])))
        pieces = whole(own, text)
        assert read == [[own.cls, *pieces, own.sep, *pieces, own.sep]] * 2
        read.clear()
        words = text.split()
        example = Example(tuple(words), ("O",) * len(words), "", 0)
        data = TagAnswers(["O"]).encode(encoder, [example], 512)
        assert rows_of(data.inputs) == [[own.cls, *whole(own, " ".join(words)), own.sep]]


@pytest.mark.parametrize("name", EVERY)
def test_occurrences_of_a_word_are_read_in_their_sentence(
    encoders: Callable[[str], BertEncoder], name: str, tmp_path: Path
) -> None:
    encoder = encoders(name)
    (tmp_path / "lines").write_text("(the) fox, “fox's” (fox)!\nA fox\n")
    found = read_occurrences(tmp_path / "lines", "fox")
    assert len(found) == 4
    vectors = occurrence_vectors(encoder, found)
    sentence = "(the) fox, “fox's” (fox)!"
    inputs = encoder.encode_words([(TextWords.of(sentence),)], 512)
    assert rows_of(inputs)[0][1:-1] == whole(encoder.tokenizer, sentence)
    [every] = embed(encoder, [sentence])
    at = [n for n, word in enumerate(split_like_bert(sentence)[0]) if word == "fox"]
    np.testing.assert_allclose(vectors[:3], every[at], atol=1e-5)


@pytest.mark.parametrize("name", EVERY)
def test_long_inputs_are_cut_between_words(
    encoders: Callable[[str], BertEncoder], name: str
) -> None:
    encoder = encoders(name)
    for text in [*PASSAGES, *(text for text in NASTY if split_like_bert(text)[0])]:
        words = TextWords.of(text)
        for length in (8, 11, 20):
            inputs = encoder.encode_words([(words,), (words[1:] or words,)], length)
            assert inputs.lengths.max() <= length
            assert (inputs.word_counts > 0).all()
            for row, starts in enumerate(np.split(inputs.word_starts, inputs.word_offsets[1:-1])):
                assert (starts < inputs.lengths[row]).all()
