"""Sentences with their document as context: only their own words are tagged."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from data_prep.errors import SesameError, UsageError
from data_prep.vectors.table import VectorTable
from pipeline.encoders import BertEncoder, Concatenation, Encoder, StaticEncoder, random_encoder
from pipeline.encoders.stored import stored_states
from pipeline.models.bert.config import BertConfig
from pipeline.tasks.answers import TagAnswers
from pipeline.tasks.config import FinetuneConfig, TaskConfig
from pipeline.tasks.conll import read_conll
from pipeline.tasks.examples import Example, TaskFile
from pipeline.tasks.finetuned import build
from pipeline.tasks.model import head_outputs
from tests.pipeline.toy_tokenizer import write_toy_tokenizer

LETTERS = [*"abcdefghijklmnop"]
MODEL = BertConfig(layers=1, hidden=16, heads=2, intermediate=32, max_positions=32)
TASK = TaskConfig(name="toy", kind="tag", reader="conll", metric="entity_f1", context="document")
DOCUMENTS = [["a b c", "d e f", "g h i"], ["j k"], ["l", "m n o p"]]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> BertEncoder:
    folder = write_toy_tokenizer(tmp_path_factory.mktemp("tokenizer"), LETTERS)
    encoder = random_encoder(MODEL, folder, seed=0).eval()
    assert isinstance(encoder, BertEncoder)
    return encoder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    sentences = [
        "-DOCSTART- O\n\n"
        + "\n".join("".join(f"{word} B-X\n" for word in s.split()) for s in document)
        for document in DOCUMENTS
    ]
    path = tmp_path / "train.conll"
    path.write_text("\n".join(sentences))
    return path


def read(path: Path, context: str = "document") -> list[Example]:
    return list(read_conll(TaskFile(path), replace(TASK, context=context)))


def inputs_of(encoder: BertEncoder, examples: list[Example], length: int) -> list[tuple[str, str]]:
    """Each input's tokens without special ones, and those that are tagged."""
    data = TagAnswers(["O", "B-X"]).encode(encoder, examples, length)
    shown = []
    for row in range(len(data.inputs.lengths)):
        batch = data.inputs.batch(np.array([row]))
        pieces = [encoder.tokenizer.piece(token) for token in batch.tokens_N.tolist()]
        tagged = " ".join(pieces[start] for start in batch.word_starts_W.tolist())
        shown.append((" ".join(pieces[1:-1]), tagged))
    return shown


def test_neighbours_fill_the_input_on_both_sides(encoder: BertEncoder, path: Path) -> None:
    assert inputs_of(encoder, read(path), 9) == [
        ("a b c d e f g", "a b c"),
        ("b c d e f g h", "d e f"),
        ("c d e f g h i", "g h i"),
        ("j k", "j k"),  # a document of its own
        ("l m n o p", "l"),
        ("l m n o p", "m n o p"),
    ]
    assert inputs_of(encoder, read(path), 32)[1] == ("a b c d e f g h i", "d e f")


def test_the_words_and_tags_are_those_without_context(encoder: BertEncoder, path: Path) -> None:
    with_context, alone = read(path), read(path, "sentence")
    assert [(e.texts, e.gold, e.line) for e in with_context] == [
        (e.texts, e.gold, e.line) for e in alone
    ]
    answers = TagAnswers(["O", "B-X"])
    for length in (4, 9, 32):  # sentences longer than an input are cut, without context
        one, other = (answers.encode(encoder, each, length) for each in (with_context, alone))
        assert one.gold.tolist() == other.gold.tolist()
        assert one.inputs.lengths.max() <= length
        outputs = np.zeros((len(one.gold), 2), np.float32)
        assert [g.answer for g in answers.decode(outputs, one)] == [
            g.answer for g in answers.decode(outputs, other)
        ]


def test_documents_of_one_sentence_have_no_context(encoder: BertEncoder, path: Path) -> None:
    path.write_text("".join(f"-DOCSTART- O\n\n{w} O\n{w} O\n{w} O\n\n" for w in LETTERS))
    for length in (4, 9):  # also where a sentence is cut
        assert inputs_of(encoder, read(path), length) == inputs_of(
            encoder, read(path, "sentence"), length
        )


def test_states_of_the_context_are_not_stored(
    encoder: BertEncoder, path: Path, tmp_path: Path
) -> None:
    """A word is context of many sentences, so its states would be stored many times."""
    examples = read(path)
    with stored_states(encoder, tmp_path / "states", torch.device("cpu"), [0, 1]) as stored:
        TagAnswers(["O", "B-X"]).encode(stored, examples, 32)
        rows = [len(np.load(file)) for file in (tmp_path / "states").iterdir()]
    assert rows == [sum(len(example.texts) for example in examples)] * 2


@pytest.mark.parametrize("kind", ["bert", "vectors", "several", "stored"])
def test_every_encoder_tags_the_same_words(
    kind: str, encoder: BertEncoder, path: Path, tmp_path: Path
) -> None:
    table = np.random.default_rng(0).normal(size=(len(LETTERS), 4)).astype(np.float32)
    vectors = StaticEncoder(VectorTable(LETTERS, table))
    own: Encoder = {"vectors": vectors, "several": Concatenation([encoder, vectors])}.get(
        kind, encoder
    )
    answers, config = TagAnswers(["O", "B-X"]), FinetuneConfig(mode="frozen")
    examples = read(path)
    with stored_states(own, tmp_path / "states", torch.device("cpu"), range(own.states)) as stored:
        used = stored if kind == "stored" else own
        model = build(used, answers, TASK, config).model
        data = answers.encode(used, examples, 9)
        outputs = head_outputs(model, data)
        states = [used(data.inputs.batch(np.array([row])))[-1] for row in range(6)]
        batches = [data.inputs.batch(np.array([row])) for row in range(6)]
        alone = [
            model.head.output(state[batch.word_starts_W])
            for state, batch in zip(states, batches, strict=True)
        ]
    np.testing.assert_allclose(outputs, torch.cat(alone).detach().numpy(), atol=1e-5)


def test_files_without_documents_are_refused(path: Path) -> None:
    path.write_text("a O\n\nb O\n")
    with pytest.raises(SesameError, match=r"task\.context=document: has no -DOCSTART- lines"):
        read(path)
    with pytest.raises(UsageError, match=r"task\.context=document: needs task\.reader=conll"):
        replace(TASK, reader="conllu", metric="accuracy").check()
