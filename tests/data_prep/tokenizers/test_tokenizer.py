"""The tokenizer at work: equal to the libraries on any text, and what a folder holds."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings

from data_prep.config import TokenizerConfig
from data_prep.tokenizers import Tokenizer
from data_prep.tokenizers.build import build_tokenizer
from tests.data_prep.tokenizer_texts import (
    KINDS,
    NASTY,
    SENTENCES,
    TEXTS,
    library_ids,
    many_lines,
    our_ids,
    write_corpus,
)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    write_corpus(folder)
    return folder


@pytest.fixture(scope="module")
def built(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folders: dict[str, Path] = {}

    def build(name: str) -> Path:
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp("tokenizer")
            build_tokenizer(shards, folders[name], TokenizerConfig(**KINDS[name], workers=1))
        return folders[name]

    return build


@pytest.fixture(params=KINDS)
def folder(request: pytest.FixtureRequest, built: Callable[[str], Path]) -> Path:
    return built(request.param)


def test_special_ids_and_files(folder: Path) -> None:
    tokenizer = Tokenizer.load(folder)
    ids = (tokenizer.pad, tokenizer.unk, tokenizer.cls, tokenizer.sep, tokenizer.mask)
    assert ids == (0, 1, 2, 3, 4)
    assert [tokenizer.piece(id) for id in ids] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    about = json.loads((folder / "sesame.json").read_text())
    assert (about["kind"], about["vocab_size"]) == (tokenizer.kind, tokenizer.size)
    assert not (folder / ".pieces").exists()
    if tokenizer.kind == "wordpiece":
        assert len((folder / "vocab.txt").read_text().splitlines()) == tokenizer.size
    else:
        model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spiece.model"))
        assert len(model) == tokenizer.size


def test_vocabulary_has_the_size_asked_for(built: Callable[[str], Path]) -> None:
    for name, config in KINDS.items():
        assert Tokenizer.load(built(name)).size == config["vocab_size"]


def test_ordinary_pieces_are_text(folder: Path) -> None:
    tokenizer = Tokenizer.load(folder)
    pieces = [tokenizer.piece(int(id)) for id in tokenizer.ordinary]
    assert not any(piece.startswith("<0x") or piece == "[MASK]" for piece in pieces)
    assert min(tokenizer.ordinary) >= 5 and len(pieces) > 200


def test_starts_word_marks_first_pieces(folder: Path) -> None:
    tokenizer = Tokenizer.load(folder)
    encoded = tokenizer.encode_words(["lazy", "fox", "newcomers", "åter"])
    for number in range(len(encoded)):
        marks = tokenizer.starts_word[encoded[number]].tolist()
        assert marks == [True] + [False] * (len(marks) - 1)


def test_lowercasing_keeps_letters_apart_from_their_accents(shards: Path, tmp_path: Path) -> None:
    for kind in ("wordpiece", "unigram"):
        out = tmp_path / kind
        out.mkdir()
        build_tokenizer(shards, out, TokenizerConfig(kind, 320, lowercase=True, workers=1))
        tokenizer = Tokenizer.load(out)
        upper, lower, bare = our_ids(tokenizer, ["Å", "å", "a"])
        assert upper == lower != bare
        assert tokenizer.unk not in lower


@settings(max_examples=80, deadline=None)
@given(texts=TEXTS)
@pytest.mark.parametrize("name", KINDS)
def test_words_once_equals_the_library(
    built: Callable[[str], Path], name: str, texts: list[str]
) -> None:
    tokenizer = _loaded(built(name))
    assert tokenizer._words is not None
    assert our_ids(tokenizer, texts) == library_ids(tokenizer, texts)


_tokenizers: dict[Path, Tokenizer] = {}


def _loaded(folder: Path) -> Tokenizer:
    """Loaded once, so that hypothesis also exercises the memory between calls."""
    return _tokenizers.setdefault(folder, Tokenizer.load(folder))


def test_nasty_texts_equal_the_library(folder: Path) -> None:
    tokenizer = Tokenizer.load(folder)
    assert our_ids(tokenizer, NASTY) == library_ids(tokenizer, NASTY)


def test_auto_tokenizer_gives_the_same_ids(folder: Path, tmp_path: Path) -> None:
    import transformers

    # As in an exported model's folder, where transformers also sees what model it is for.
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    tokenizer = Tokenizer.load(folder)
    for place, texts in ((folder, SENTENCES + NASTY + many_lines()), (tmp_path, NASTY)):
        auto = transformers.AutoTokenizer.from_pretrained(place, local_files_only=True)
        got = auto(texts, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        assert got == our_ids(tokenizer, texts)
        assert auto.mask_token_id == tokenizer.mask and len(auto) == tokenizer.size
        framed = auto("the fox", "the dog")
        assert framed["input_ids"][0] == tokenizer.cls
        assert framed["input_ids"][-1] == tokenizer.sep
        assert set(framed["token_type_ids"]) == {0, 1}
        assert auto("a [MASK] b")["input_ids"].count(tokenizer.mask) == 1


@pytest.mark.parametrize("name", ["unigram", "unigram, folded", "bpe", "bpe, bytes"])
def test_ids_equal_sentencepiece(built: Callable[[str], Path], name: str) -> None:
    tokenizer = Tokenizer.load(built(name))
    model = sentencepiece.SentencePieceProcessor(model_file=str(built(name) / "spiece.model"))
    texts = [text for text in SENTENCES + NASTY if "\x00" not in text]
    normalised = [tokenizer.library.normalizer.normalize_str(text) for text in texts]
    assert our_ids(tokenizer, texts) == model.encode(normalised)


def test_the_model_file_holds_no_path(built: Callable[[str], Path]) -> None:
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString((built("unigram") / "spiece.model").read_bytes())
    assert not proto.trainer_spec.input and not proto.trainer_spec.model_prefix
    assert proto.normalizer_spec.name == "identity"


def test_byte_fallback_leaves_nothing_unknown(built: Callable[[str], Path]) -> None:
    tokenizer = Tokenizer.load(built("bpe, bytes"))
    ids = tokenizer.encode(["龘 ꙮ 1984"]).ids
    assert tokenizer.unk not in ids
    assert tokenizer.decode(ids) == "龘 ꙮ 1984"
    digits = [id for id in ids.tolist() if any(digit in tokenizer.piece(id) for digit in "1984")]
    assert all(len(tokenizer.piece(id).strip("▁")) in (1, len("<0x00>")) for id in digits)


def test_decode_reads_well(folder: Path) -> None:
    tokenizer = Tokenizer.load(folder)
    text = "the lazy dog"
    assert tokenizer.decode(tokenizer.encode([text]).ids) == text
    assert tokenizer.decode(np.array([tokenizer.mask])) == "[MASK]"


def test_words_alone_are_as_inside_a_sentence(folder: Path) -> None:
    tokenizer = Tokenizer.load(folder)
    words = SENTENCES[0].split()
    assert np.array_equal(tokenizer.encode_words(words).ids, tokenizer.encode([SENTENCES[0]]).ids)


def test_memory_between_calls_is_bounded(
    built: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("data_prep.tokenizers.tokenizer.CACHE_WORDS", 10)
    monkeypatch.setattr("data_prep.tokenizers.tokenizer.BLOCK", 100)
    tokenizer = Tokenizer.load(built("wordpiece"))
    texts = [f"{sentence} {number}" for number, sentence in enumerate(SENTENCES * 20)]
    assert our_ids(tokenizer, texts) == library_ids(tokenizer, texts)
    assert tokenizer._words is not None and len(tokenizer._words._table) < 100


def test_a_folder_taken_as_source_is_made_again(folder: Path, tmp_path: Path) -> None:
    build_tokenizer(None, tmp_path, TokenizerConfig(source=str(folder)))
    for file in folder.iterdir():
        if file.name != "statistics.json":  # nothing is counted where nothing is trained
            assert (tmp_path / file.name).read_bytes() == file.read_bytes(), file.name
