"""Training tokenizers: words counted exactly and in bounds, the same bytes on every run."""

import hashlib
import json
import multiprocessing
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.config import TokenizerConfig
from data_prep.corpus.shard_format import Origin, StoredSection, write_shard
from data_prep.errors import SesameError, UsageError
from data_prep.passes import Passes
from data_prep.text.segmentation import separate_words
from data_prep.tokenizers import Tokenizer
from data_prep.tokenizers.build import build_tokenizer
from data_prep.tokenizers.counting import count_raw_words, count_words
from data_prep.tokenizers.measure import figures
from data_prep.tokenizers.merging import Counted, Limit, WordCounts, merge, most_frequent
from data_prep.tokenizers.wordtable import WordTable, as_buffer
from tests.data_prep.tokenizer_texts import (
    HELD_OUT,
    KINDS,
    SENTENCES,
    TEXTS,
    write_corpus,
    write_shards,
)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    write_corpus(folder)
    return folder


def digest(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
    }


@pytest.mark.parametrize(("name", "workers"), [("wordpiece", 2), ("unigram", 1), ("bpe", 1)])
def test_bytes_do_not_depend_on_process_or_workers(
    shards: Path, name: str, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    build_tokenizer(shards, here, TokenizerConfig(**KINDS[name], workers=1))
    monkeypatch.setenv("PYTHONHASHSEED", "17")
    config = TokenizerConfig(**KINDS[name], workers=workers)
    process = multiprocessing.get_context("spawn").Process(
        target=build_tokenizer, args=(shards, there, config)
    )
    process.start()
    process.join()
    assert process.exitcode == 0
    assert digest(here) == digest(there)


def test_a_kill_while_cleaning_up_does_no_harm(shards: Path, tmp_path: Path) -> None:
    left = tmp_path / ".removed" / "count-000000"
    left.mkdir(parents=True)
    (left / "words").write_bytes(b"half")
    build_tokenizer(shards, tmp_path, TokenizerConfig(**KINDS["bpe"], workers=1))
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def counted(words: list[bytes], counts: list[int]) -> Counted:
    return Counted(words, np.array(counts, np.float64), np.zeros((len(words), 0), np.uint32))


def test_finished_pieces_are_used_again(shards: Path, tmp_path: Path) -> None:
    """After a kill: what a piece counted is taken as it stands, whatever the shards hold now."""
    config = TokenizerConfig(**KINDS["wordpiece"], workers=1)
    for number in range(3):
        piece = tmp_path / ".pieces" / f"count-{number:06d}"
        piece.mkdir(parents=True)
        counted([b"only", b"these"], [3, 4]).save(piece)
    with pytest.raises(SesameError, match="at most"):
        build_tokenizer(shards, tmp_path, config)


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "bpe"])
def test_too_large_a_vocabulary_names_what_fits(shards: Path, tmp_path: Path, kind: str) -> None:
    with pytest.raises(SesameError, match=r"tokenizer\.vocab_size=9000.* at most (\d+)") as caught:
        build_tokenizer(shards, tmp_path, TokenizerConfig(kind, 9000, workers=1))
    assert caught.value.exit_code == 1
    largest = int(str(caught.value).split("at most ")[1].split()[0])
    build_tokenizer(shards, tmp_path, TokenizerConfig(kind, largest, workers=1))
    assert Tokenizer.load(tmp_path).size == largest


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "bpe"])
def test_too_small_a_vocabulary_names_what_is_needed(
    shards: Path, tmp_path: Path, kind: str
) -> None:
    with pytest.raises(SesameError, match=r"tokenizer\.vocab_size=20.* need \d+"):
        build_tokenizer(shards, tmp_path, TokenizerConfig(kind, 20, workers=1))


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_empty_shards_are_an_error(tmp_path: Path, kind: str) -> None:
    write_shards(tmp_path, "train", [])
    with pytest.raises(SesameError, match="no words"):
        build_tokenizer(tmp_path, tmp_path, TokenizerConfig(kind, 20, workers=1))


def test_statistics_balance(shards: Path, tmp_path: Path) -> None:
    counts = build_tokenizer(shards, tmp_path, TokenizerConfig(**KINDS["wordpiece"], workers=1))
    assert counts == json.loads((tmp_path / "statistics.json").read_text())
    heldout = counts["heldout"]
    assert heldout["words"] == sum(len(separate_words(text).split()) for text in HELD_OUT)
    assert heldout["pieces"] == Tokenizer.load(tmp_path).encode(HELD_OUT).ids.size
    assert heldout["fertility"] == heldout["pieces"] / heldout["words"] > 1
    assert heldout["unknown_rate"] == 1 / heldout["pieces"]
    assert heldout["coverage"] == 1 - 1 / heldout["characters"]
    assert heldout["changed_characters"] == 0


def test_rates_over_nothing_are_null() -> None:
    assert figures(Counter())["fertility"] is None


@settings(max_examples=80, deadline=None)
@given(texts=TEXTS)
def test_the_table_finds_the_words_python_finds(texts: list[str]) -> None:
    table = WordTable()
    numbers, ends = table.number(as_buffer([text.encode() for text in texts]), len(texts))
    words = [word.decode() for word in table.words()]
    assert len(set(words)) == len(words)
    expected = [word for text in texts for word in _ascii_split(text)]
    assert [words[number] for number in numbers] == expected
    assert ends.tolist() == np.cumsum([len(_ascii_split(text)) for text in texts]).tolist()


def _ascii_split(text: str) -> list[str]:
    for space in "\t\n\r":
        text = text.replace(space, " ")
    return [word for word in text.split(" ") if word]


def test_the_table_grows_and_keeps_its_numbers() -> None:
    words = [f"{'long' * (number % 50)}{number}" for number in range(40_000)]
    table = WordTable()
    first, _ = table.number(as_buffer([" ".join(words).encode()]), 1)
    again, _ = table.number(as_buffer([b"x" * 3_000_000, " ".join(words[::-1]).encode()]), 2)
    assert first.tolist() == list(range(40_000))
    assert again.tolist() == [40_000, *range(39_999, -1, -1)]


def test_raw_counts_are_exact() -> None:
    texts = SENTENCES * 3 + ["a,b a"]
    expected = Counter(word for text in texts for word in text.split())
    assert count_raw_words(texts, punctuation_stands_alone=False) == expected
    assert count_raw_words(["a,b a"], punctuation_stands_alone=True) == {"a": 2, ",": 1, "b": 1}


def test_a_full_memory_drops_the_rarest_words(tmp_path: Path) -> None:
    def piece(number: int, counts: dict[str, int]) -> Path:
        folder = tmp_path / str(number)
        folder.mkdir()
        counted([word.encode() for word in counts], list(counts.values())).save(folder)
        return folder

    folders = [
        piece(0, {"a": 5, "b": 9, "c": 1, "d": 1, "e": 1}),
        piece(1, {"b": 1, "f": 7}),
    ]
    whole = merge(folders)
    assert list(zip(whole.words, whole.counts, strict=True)) == [
        ("b", 10), ("f", 7), ("a", 5), ("c", 1), ("d", 1), ("e", 1),
    ]  # fmt: skip
    small = merge(folders, in_merge=Limit(4, 100))
    assert list(zip(small.words, small.counts, strict=True)) == [("b", 10), ("f", 7), ("a", 5)]
    assert merge(folders, in_merge=Limit(100, 4)) == small
    assert merge(folders, in_training=Limit(2, 100)).words == ["b", "f"]
    some = merge(folders, in_training=Limit(100, 4)).words
    assert some[:3] == ["b", "f", "a"] and len(some) == 4
    assert small.total == whole.total == 25


def train_words(folder: Path, documents: list[list[str]], **values: Any) -> WordCounts:
    """Count documents, one section a sentence, in pieces of a few sections."""
    folder.mkdir()
    sections = [
        StoredSection(number, place, sentence.encode(), Origin(str(number), "a").encode(), 1, 0)
        for number, sentences in enumerate(documents)
        for place, sentence in enumerate(sentences)
    ]
    for first in range(0, len(sections), 3):
        write_shard(folder / f"train-{first:05d}.tar", sections[first : first + 3])
    config = TokenizerConfig(**{"kind": "unigram", **values})
    return count_words(folder, config, Passes.below(folder))


@settings(max_examples=10, deadline=None)
@given(
    documents=st.lists(
        st.lists(st.text("abcA ", min_size=1, max_size=6), min_size=1, max_size=9),
        min_size=1, max_size=9,
    ),
    least=st.integers(1, 4),
)  # fmt: skip
def test_words_of_few_documents_are_kept_out(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[str]], least: int
) -> None:
    """Also where a document goes on through several pieces, and where cases fall together."""
    folder = tmp_path_factory.mktemp("words") / "shards"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("data_prep.tokenizers.counting.UNIT_BYTES", 1)
        counts = train_words(folder, documents, min_documents=least, lowercase=True)
    own = [Counter(" ".join(sentences).lower().split()) for sentences in documents]
    seen_in = Counter(word for words in own for word in words)
    total = sum(own, Counter[str]())
    kept = {word: count for word, count in total.items() if seen_in[word] >= least}
    assert dict(zip(counts.words, counts.counts, strict=True)) == kept
    assert counts.kept_out == len(total) - len(kept) and counts.total == total.total()


def test_no_piece_is_in_fewer_documents(tmp_path: Path) -> None:
    """A name that two documents have is nowhere in the vocabulary, not even in part."""
    documents = [[*SENTENCES, "common words recur in these documents"] for _ in range(30)]
    documents[3].append("Zwxqvy")
    documents[8].append("Zwxqvy 龘龘")
    write_shards(tmp_path, "train", documents)
    write_shards(tmp_path, "heldout", [["some words"]])
    for kind, size in (("wordpiece", 200), ("unigram", 150), ("bpe", 200)):
        for least, is_kept in ((3, False), (2, True)):
            out = tmp_path / f"{kind}-{least}"
            out.mkdir()
            config = TokenizerConfig(kind, size, min_documents=least, workers=1)
            build_tokenizer(tmp_path, out, config)
            tokenizer = Tokenizer.load(out)
            pieces = "".join(map(tokenizer.piece, range(tokenizer.size)))
            assert ("Z" in pieces) == is_kept
            assert "龘" not in pieces and "玻" in pieces


def test_a_source_counts_as_its_weight_says(tmp_path: Path) -> None:
    sections = [
        StoredSection(number, 0, text.encode(), Origin(str(number), "a").encode(), 1, 0, weight)
        for number, (text, weight) in enumerate([("a b", 2.5), ("b c", 1.0), ("d", 0.1)])
    ]
    write_shard(tmp_path / "train-00000.tar", sections)
    counts = count_words(tmp_path, TokenizerConfig("bpe"), Passes.below(tmp_path))
    # 2.5 is rounded to even, and a word that is expected less than half a time goes.
    assert list(zip(counts.words, counts.counts, strict=True)) == [("b", 4), ("a", 2), ("c", 1)]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"user_symbols": ["two words"]}, "white space"),
        ({"user_symbols": ["[MASK]"]}, "special token"),
        ({"user_symbols": ["<x>", "<x>"]}, "named twice"),
        ({"user_symbols": ["[NAME]"], "lowercase": True}, r"tokenizer\.lowercase"),
        ({"user_symbols": ["<å>"], "strip_accents": True}, r"tokenizer\.strip_accents"),
        ({"kind": "wordpiece", "byte_fallback": True}, r"tokenizer\.byte_fallback"),
        ({"source": "here", "min_documents": 5}, r"tokenizer\.min_documents=5"),
    ],
)
def test_what_would_not_be_followed_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TokenizerConfig(**values).check()


def test_of_equally_rare_words_a_fair_sample_is_kept() -> None:
    """Byte order would keep the clauses that begin with the first characters of the script."""
    clauses = sorted(chr(0x4E00 + 11 * n) + chr(0x4E00 + n) for n in range(1500))
    words = [b"often", *(clause.encode() for clause in clauses)]
    kept = most_frequent(words, np.array([9] + [1] * 1500), Limit(301, 1 << 20))
    assert kept[0] == 0 and (np.diff(kept[1:]) > 0).all()
    quarters = np.bincount((kept[1:] - 1) // 375, minlength=4)
    assert quarters.sum() == 300 and quarters.min() > 50


def test_a_word_in_many_documents_of_one_group_is_kept_out(tmp_path: Path) -> None:
    """A patient's name is in all notes of the patient, which lie apart and in several units."""
    groups = ["anna", "bo", "cilla", "anna", "dag", "anna", "anna", None, "anna", None]
    sections = [
        StoredSection(
            number, 0, f"seen today {group or number}\n".encode(),
            Origin(str(number), "a", group).encode(), 1, 3,
        )
        for number, group in enumerate(groups)
    ]  # fmt: skip
    for first in range(0, len(sections), 2):
        write_shard(tmp_path / f"train-{first:05d}.tar", sections[first : first + 2])
    config = TokenizerConfig("unigram", min_documents=5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("data_prep.tokenizers.counting.UNIT_BYTES", 1)
        counts = count_words(tmp_path, config, Passes.below(tmp_path))
    assert counts.words == ["seen", "today"] and counts.kept_out == 6
