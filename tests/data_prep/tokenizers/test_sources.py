"""Tokenizers others made: read with their own special ids and rules, or refused by name."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import sentencepiece
from tokenizers import AddedToken, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as LibraryTokenizer

from data_prep.config import TokenizerConfig
from data_prep.errors import SesameError, UsageError
from data_prep.tokenizers import Tokenizer
from data_prep.tokenizers.build import build_tokenizer
from data_prep.tokenizers.measure import sums_over
from data_prep.tokenizers.sources import read_source, source_files
from tests.data_prep.tokenizer_texts import NASTY, SENTENCES, library_ids, our_ids


@pytest.fixture
def bert_folder(tmp_path: Path) -> Path:
    """As Google's releases: special pieces at odd places, nothing said about case."""
    pieces = ["[PAD]", "[unused1]", "the", "fox", "##es", "a", ",", "[UNK]", "[CLS]", "[SEP]"]
    (tmp_path / "vocab.txt").write_text("\n".join([*pieces, "[MASK]", "åter", "ater"]) + "\n")
    return tmp_path


def test_special_ids_come_from_the_source(bert_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    counts = build_tokenizer(None, out, TokenizerConfig(source=str(bert_folder)))
    assert counts["vocab_size"] == 13
    for place in (bert_folder, out):
        tokenizer = Tokenizer.load(place)
        ids = (tokenizer.pad, tokenizer.unk, tokenizer.cls, tokenizer.sep, tokenizer.mask)
        assert ids == (0, 7, 8, 9, 10)
        assert our_ids(tokenizer, ["The foxes, ÅTER"]) == [[2, 3, 4, 6, 12]]  # uncased, as BERT
        assert 1 not in tokenizer.ordinary and 2 in tokenizer.ordinary
    assert (out / "vocab.txt").read_bytes() == (bert_folder / "vocab.txt").read_bytes()


def test_the_folder_says_whether_case_is_kept(bert_folder: Path) -> None:
    (bert_folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    tokenizer = Tokenizer.load(bert_folder)
    assert our_ids(tokenizer, ["The åter"]) == [[tokenizer.unk, 11]]


def test_a_plain_sentencepiece_model_gets_what_it_lacks(tmp_path: Path) -> None:
    lines = iter([*SENTENCES * 5])
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines, model_prefix=str(tmp_path / "own"), vocab_size=140,
        model_type="unigram", minloglevel=2, user_defined_symbols=["<user>"],
    )  # fmt: skip
    tokenizer = Tokenizer.load(tmp_path / "own.model")
    assert (tokenizer.piece(tokenizer.cls), tokenizer.piece(tokenizer.sep)) == ("<s>", "</s>")
    assert {tokenizer.pad, tokenizer.mask} == {140, 141} and tokenizer.size == 142
    model = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "own.model"))
    texts = ["The ﬁrst  fox’s naïve", "<s> x", *SENTENCES]
    assert our_ids(tokenizer, texts) == model.encode(texts)


def foreign(tmp_path: Path, change: Callable[[LibraryTokenizer], None]) -> Path:
    vocabulary = {piece: id for id, piece in enumerate(["[UNK]", "the", "fox", "##es", "##,"])}
    library = LibraryTokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer()
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    change(library)
    library.enable_truncation(2)
    library.enable_padding()
    library.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def cut_at_white_space_only(library: LibraryTokenizer) -> None:
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()


def look_across_white_space(library: LibraryTokenizer) -> None:
    library.normalizer = normalizers.Replace("the fox", "foxes")


def add_a_piece_with_a_space(library: LibraryTokenizer) -> None:
    library.add_tokens([AddedToken("the fox", normalized=False)])


@pytest.mark.parametrize(
    "change", [cut_at_white_space_only, look_across_white_space, add_a_piece_with_a_space]
)
def test_unknown_rules_go_through_the_library_whole(
    tmp_path: Path, change: Callable[[LibraryTokenizer], None]
) -> None:
    tokenizer = Tokenizer.load(foreign(tmp_path, change))
    texts = ["the foxes, the fox the fox", "", *NASTY]
    assert tokenizer._words is None
    assert our_ids(tokenizer, texts) == library_ids(tokenizer, texts)
    assert len(tokenizer.encode([texts[0]]).ids) > 2  # the folder's truncation is not ours


def test_space_in_the_piece_counts_as_inside_a_sentence(tmp_path: Path) -> None:
    vocabulary = {"<unk>": 0, "Ġ": 1, "a": 2, "Ġa": 3}
    library = LibraryTokenizer(models.BPE(vocabulary, [("Ġ", "a")], unk_token="<unk>"))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.encode_words(["a", "a"]).ids.tolist() == [3, 3]
    assert tokenizer.encode(["a a"]).ids.tolist() == [2, 3]
    assert tokenizer.starts_word[1:4].tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", b"{}", "not a tokenizer"),
        ("own.model", b"\x00\x01nonsense", "not a SentencePiece model"),
        ("vocab.txt", b"[UNK]\na\nb\na\n", "line 4: repeats the token of line 2"),
        ("vocab.txt", b"a\nb\n", r"no line is \[UNK\]"),
        ("vocab.txt", b"[UNK]\n\xff\n", "not UTF-8 at byte 6"),
    ],
)
def test_damaged_sources_are_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SesameError, match=message) as caught:
        read_source(tmp_path)
    assert name in str(caught.value)


def stated_tokenizer(vocabulary: dict[str, int]) -> str:
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
             "max_input_chars_per_word": 100, "vocab": vocabulary}  # fmt: skip
    return json.dumps({"version": "1.0", "added_tokens": [], "model": model})


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"tokenizer.json": stated_tokenizer({"[UNK]": 0, "a": 2**32 - 1})}, "an id 4,294,967,295"),
        ({"tokenizer.json": stated_tokenizer({"[UNK]": 0})}, "has special tokens only"),
        ({"tokenizer.json": "[" * 100_000}, "not a tokenizer"),
        ({"tokenizer.json": stated_tokenizer({"a": 0, "b": 1}), "tokenizer_config.json":
          '{"unk_token": "a"}'}, "not a tokenizer"),
        ({"own.model": ""}, "not a SentencePiece model"),
        ({"vocab.txt": "[UNK]\na\n", "tokenizer_config.json": '{"pad_token": 7}'},
         "pad_token is not a string"),
        ({"vocab.txt": "[UNK]\na\n", "tokenizer_config.json": '{"cls_token": "\\ud800"}'},
         "cls_token is not a string"),
        ({"vocab.txt": "[UNK]\na\n", "tokenizer_config.json": '{"do_lower_case": "no"}'},
         "do_lower_case must be true or false"),
    ],
)  # fmt: skip
def test_hostile_sources_are_refused(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(SesameError, match=message):
        read_source(tmp_path)


def test_a_source_without_a_vocabulary_is_bad_usage(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UsageError, match=r"tokenizer\.source="):
            source_files(path)


def test_changed_characters_are_those_normalisation_changes(bert_folder: Path) -> None:
    words = Counter({"Åter": 2, "the": 1})
    sums = sums_over(words, Tokenizer.load(bert_folder))
    assert (sums["characters"], sums["changed_characters"]) == (11, 2)


def test_stage_asks_for_shards_or_reads_the_source(bert_folder: Path) -> None:
    from pipeline.config.schema import Config
    from pipeline.stages.tokenizer import Tokenizer

    config = Config()
    assert Tokenizer().inputs(config)["shard"].stage == "shard"
    assert not Tokenizer().files(config).named
    config.tokenizer.source = str(bert_folder)
    assert Tokenizer().inputs(config) == {}
    assert Tokenizer().files(config).named == [("vocab.txt", bert_folder / "vocab.txt")]
    config.tokenizer.lowercase = True
    with pytest.raises(UsageError, match=r"tokenizer\.source"):
        config.tokenizer.check()
