"""Whole words as a vocabulary: how text is cut, what is predicted, and bad vocabulary files."""

from pathlib import Path

import numpy as np
import pytest

from data_prep.config import TokenizerConfig
from data_prep.errors import SesameError
from data_prep.tokenizers import Tokenizer
from data_prep.tokenizers.build import build_tokenizer
from data_prep.tokenizers.counting import WordCounts, word_normaliser
from data_prep.tokenizers.vocabulary import read_counts, read_vocabulary, write_words
from data_prep.tokenizers.words import SPECIALS, from_words, split_like_elmo

COUNTS = WordCounts(["the", "of", "<S>", "sea", "ship", "Ærø"], [50, 20, 9, 4, 4, 1], 88, 6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("words")
    write_words(COUNTS, made, TokenizerConfig(kind="words", vocab_size=6))
    return made


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't panic, it's 3,141.5 %!", ["Don't", "panic", ",", "it's", "3,141.5", "%", "!"]),
        ("well-known (U.S.)…", ["well-known", "(", "U.S", ".", ")", "…"]),
        ("naïve  हिन्दी", ["naïve", "हिन्दी"]),
        ("中文 ok我们去北京。", ["中文", "ok", "我们", "去", "北京", "。"]),
        ("อากาศดีมาก", ["อากาศ", "ดี", "มาก"]),
        ("<S> </S>", ["<", "S", ">", "<", "/", "S", ">"]),
        ("", []),
    ],
)
def test_words_are_cut_with_punctuation_apart(text: str, words: list[str]) -> None:
    assert split_like_elmo(text) == words


def test_a_vocabulary_without_a_segmenter_keeps_its_words() -> None:
    """Those of earlier versions: the models that learned them still read the same words."""
    before = from_words(["中", "文"], lowercase=False, strip_accents=False, spaced=False)
    assert split_like_elmo("中文 ok", before) == ["中", "文", "ok"]
    assert Tokenizer(before, SPECIALS).encode(["中文文"])[0].tolist() == [3, 4, 4]


@pytest.mark.parametrize("kind", ["words", "spaced_words"])
def test_what_is_counted_is_what_is_encoded(tmp_path: Path, kind: str) -> None:
    text = "the sea, the ship's of <S> <UNK> Ærø\u0301 x."
    write_words(COUNTS, tmp_path, TokenizerConfig(kind=kind, vocab_size=6))
    tokenizer = Tokenizer.load(tmp_path)
    normalise = word_normaliser(TokenizerConfig(kind=kind))
    counted = [word for raw in text.split() for word in normalise(raw)]
    assert tokenizer.kind == "words"
    assert len(tokenizer.encode([text])[0]) == len(counted)
    plain = tokenizer.library.encode(text, add_special_tokens=False).ids
    assert tokenizer.encode([text])[0].tolist() == plain
    frame = {tokenizer.cls, tokenizer.sep}
    assert not frame & set(plain), "a frame that the text itself has would end its sentence"


def test_rare_words_have_ids_past_the_predicted_ones(folder: Path) -> None:
    assert (folder / "vocabulary.txt").read_text() == "<S>\n</S>\n<UNK>\nthe\nof\nsea\n"
    tokenizer = Tokenizer.load(folder)
    assert [tokenizer.piece(number) for number in range(tokenizer.size)] == [
        "<S>", "</S>", "<UNK>", "the", "of", "sea", "ship", "Ærø",
    ]  # fmt: skip
    assert tokenizer.encode(["the ship sails"])[0].tolist() == [3, 6, 2]
    assert np.load(folder / "counts.npy").tolist() == [0, 0, 88 - 74, 50, 20, 4]


def test_a_vocabulary_the_text_cannot_fill_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SesameError, match="vocab_size=9: this corpus supports at most 8 words"):
        write_words(COUNTS, tmp_path, TokenizerConfig(kind="words", vocab_size=9))


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("the\n<S>\n</S>\n<UNK>\n", "line 1: must be <S>"),
        ("<S>\n</S>\nthe\n<UNK>\n", "line 3: must be <UNK>"),
        ("<S>\n</S>\n<UNK>\nthe\nsea\nthe\n", "line 6: repeats the word of line 4"),
        ("<S>\n</S>\n<UNK>\nthe sea\n", "line 4: must be one word"),
        ("<S>\n</S>\n<UNK>\n\nsea\n", "line 4: must be one word"),
        ("<S>\n</S>\n<UNK>\n", "no words after"),
        (b"<S>\n</S>\n<UNK>\n\xff\n", "not UTF-8 at byte 15"),
    ],
)
def test_bad_vocabularies_name_their_line(tmp_path: Path, lines: str | bytes, says: str) -> None:
    file = tmp_path / "vocabulary.txt"
    file.write_bytes(lines if isinstance(lines, bytes) else lines.encode())
    with pytest.raises(SesameError, match=says):
        read_vocabulary(file)


def test_rising_counts_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "counts.npy", np.array([0, 0, 3, 9, 4, 5]))
    with pytest.raises(SesameError, match="line 6"):
        read_counts(tmp_path / "counts.npy")


def test_a_given_tokenizer_keeps_its_vocabulary(folder: Path, tmp_path: Path) -> None:
    build_tokenizer(None, tmp_path, TokenizerConfig(source=str(folder)))
    for name in ("vocabulary.txt", "counts.npy", "tokenizer.json"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def test_bilm_vocabularies_are_taken_under_any_name(tmp_path: Path) -> None:
    file = tmp_path / "vocabulary-2016-09-10.txt"
    file.write_text("<S>\n</S>\n<UNK>\nthe\nsea\n!!!MAXTERMID\n")
    out = tmp_path / "out"
    out.mkdir()
    build_tokenizer(None, out, TokenizerConfig(source=str(file)))
    assert read_vocabulary(out / "vocabulary.txt") == ["<S>", "</S>", "<UNK>", "the", "sea"]
    assert Tokenizer.load(out).encode(["the sea!"])[0].tolist() == [3, 4, 2]
