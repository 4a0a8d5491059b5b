"""Tokenizers: trained the same on every run, equal to the libraries, and bounded."""

import hashlib
import json
import multiprocessing
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as LibraryTokenizer

from data_prep.config import TokenizerConfig
from data_prep.errors import SesameError, UsageError
from data_prep.shards import metadata_tail, write_shard
from data_prep.tokenizers import Tokenizer
from data_prep.tokenizers.build import build_tokenizer
from data_prep.tokenizers.counting import Limit, count_raw_words, merge
from data_prep.tokenizers.measure import figures, sums_over
from data_prep.tokenizers.sources import read_source, source_files
from data_prep.tokenizers.wordtable import WordTable, as_buffer

KINDS = {
    "wordpiece": {"kind": "wordpiece", "vocab_size": 400},
    "wordpiece, folded": {
        "kind": "wordpiece", "vocab_size": 300, "lowercase": True, "strip_accents": True,
    },
    "unigram": {"kind": "unigram", "vocab_size": 350},
    "unigram, folded": {
        "kind": "unigram", "vocab_size": 300, "lowercase": True, "strip_accents": True,
    },
    "bpe": {"kind": "bpe", "vocab_size": 400, "lowercase": True},
    "bpe, bytes": {
        "kind": "bpe", "vocab_size": 620, "byte_fallback": True, "split_digits": True,
    },
}  # fmt: skip

SENTENCES = [
    "The quick brown fox jumps over the lazy dog, and the dog doesn't care at all.",
    "Å, vad skönt det är på ön i åns mynning när våren kommer åter.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "我能吞下玻璃而不伤身体。天气很好。",
    "In 1984 there were 1,024 cafés and 365 naïve façades [sic].",
    "Émile's résumé was the MASK of a newcomer; the newcomers were many.",
]
NASTY = [
    "", " ", "\n", "[MASK]", "a [MASK] b", "x[SEP]y", "[CLS][PAD]", "<0x41>", "<s> </s>",
    "å å Å Å", "e\u0301\u0301", "\u0301", "a \u0301 b", "a\u200bb", "\u200b", "\ufeffword",
    "👍🏽 👨‍👩‍👧 ok", "中文 mixed中文English", "ﬁnal ﬂow", "İstanbul ıI", "ΣΑΣ ς", "naïve",
    "a\u00a0b", "\u00a0", " \u3000 x", "tab\there", "line\r\nend", "\x00nul\x01", "\x85 \x1c",
    "▁", "a▁b", "▁▁ a", "##ing ##", "don't-stop…now", "1,234.56", "x" * 101, "é" * 120,
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢", "\U0010ffff", "ا ل ع ر ب ي ة", "हिन्दी में", "ไทย", "= \u0338 ≠", "\ufffd",
]  # fmt: skip
WORDS_OF_TESTS = st.sampled_from([word for text in SENTENCES + NASTY for word in text.split()])
TEXTS = st.lists(
    st.one_of(
        st.sampled_from(NASTY),
        st.text(max_size=40),
        st.lists(st.one_of(WORDS_OF_TESTS, st.characters(), st.sampled_from(" \t\n .,[]▁")))
        .map("".join),
    ),
    max_size=8,
)  # fmt: skip


def write_shards(folder: Path, split: str, documents: list[list[str]]) -> None:
    sections = (
        (number, 0, "\n".join(sentences).encode(), metadata_tail(str(number), "a"), 0, 0)
        for number, sentences in enumerate(documents)
    )
    write_shard(folder / f"{split}-00000.tar", sections)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    syllables = ["ka", "lo", "mi", "strå", "ßen", "qua", "ент", "ом", "The", "in", "er", "9"]
    rng = random.Random(0)
    documents = [
        [
            " ".join("".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(50)),
            *SENTENCES[number % 6 :],
        ]
        for number in range(60)
    ]
    write_shards(folder, "train", documents)
    write_shards(folder, "heldout", [SENTENCES[:2], [SENTENCES[3] + " 龘"]])
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


def library_ids(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    return [each.ids for each in tokenizer.library.encode_batch(texts, add_special_tokens=False)]


def our_ids(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    encoded = tokenizer.encode(texts)
    assert len(encoded) == len(texts)
    return [encoded[number].tolist() for number in range(len(texts))]


def digest(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
    }


# --- what a folder holds ---------------------------------------------------------------------


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


# --- equal to the libraries --------------------------------------------------------------------


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
    transformers = pytest.importorskip("transformers")
    # As in an exported model's folder, where transformers also sees what model it is for.
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    tokenizer = Tokenizer.load(folder)
    texts = SENTENCES + NASTY
    for place in (folder, tmp_path):
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


# --- tokenizers others made --------------------------------------------------------------------


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


def test_a_plain_sentencepiece_model_gets_what_it_lacks(
    built: Callable[[str], Path], tmp_path: Path
) -> None:
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
        ("vocab.txt", b"[UNK]\na\nb\na\n", "line 4: the piece of line 2"),
        ("vocab.txt", b"a\nb\n", r"no line is \[UNK\]"),
        ("vocab.txt", b"[UNK]\n\xff\n", "not UTF-8 at byte 6"),
    ],
)
def test_damaged_sources_are_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SesameError, match=message) as caught:
        read_source(tmp_path)
    assert name in str(caught.value)


def test_a_source_without_a_vocabulary_is_bad_usage(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UsageError, match=r"tokenizer\.source="):
            source_files(path)


# --- training ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["wordpiece", "unigram", "bpe"])
def test_bytes_do_not_depend_on_process_or_workers(
    shards: Path, built: Callable[[str], Path], name: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("PYTHONHASHSEED", "17")
    context = multiprocessing.get_context("spawn")
    config = TokenizerConfig(**KINDS[name], workers=2)
    process = context.Process(target=build_tokenizer, args=(shards, tmp_path, config))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert digest(tmp_path) == digest(built(name))


def test_finished_pieces_are_used_again(shards: Path, tmp_path: Path) -> None:
    """After a kill: what a piece counted is taken as it stands, whatever the shards hold now."""
    config = TokenizerConfig(**KINDS["wordpiece"], workers=1)
    piece = tmp_path / ".pieces" / "count-000000"
    piece.mkdir(parents=True)
    (piece / "words").write_bytes(as_buffer([b"only", b"these"]).tobytes())
    np.save(piece / "counts.npy", np.array([3, 4]))
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
    with pytest.raises(SesameError, match=r"tokenizer\.vocab_size=20.* alone are \d+"):
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
    texts = [*SENTENCES[:2], SENTENCES[3] + " 龘"]
    assert heldout["words"] == sum(len(text.split()) for text in texts)
    assert heldout["pieces"] == Tokenizer.load(tmp_path).encode(texts).ids.size
    assert heldout["fertility"] == heldout["pieces"] / heldout["words"] > 1
    assert heldout["unknown_rate"] == 1 / heldout["pieces"]
    assert heldout["coverage"] == 1 - 1 / heldout["characters"]
    assert heldout["changed_characters"] == 0


def test_changed_characters_are_those_normalisation_changes(bert_folder: Path) -> None:
    words = Counter({"Åter": 2, "the": 1})
    sums = sums_over(words, Tokenizer.load(bert_folder))
    assert (sums["characters"], sums["changed_characters"]) == (11, 2)


def test_rates_over_nothing_are_null() -> None:
    assert figures(Counter())["fertility"] is None


# --- words -------------------------------------------------------------------------------------


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
        (folder / "words").write_bytes(as_buffer([word.encode() for word in counts]).tobytes())
        np.save(folder / "counts.npy", np.array(list(counts.values())))
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
    assert merge(folders, in_training=Limit(100, 4)).words == ["b", "f", "a", "c"]
    assert small.total == whole.total == 25


def test_memory_between_calls_is_bounded(
    built: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("data_prep.tokenizers.tokenizer.CACHE_WORDS", 10)
    monkeypatch.setattr("data_prep.tokenizers.tokenizer.BLOCK", 100)
    tokenizer = Tokenizer.load(built("wordpiece"))
    texts = [f"{sentence} {number}" for number, sentence in enumerate(SENTENCES * 20)]
    assert our_ids(tokenizer, texts) == library_ids(tokenizer, texts)
    assert tokenizer._words is not None and len(tokenizer._words._table) < 100


def test_stage_asks_for_shards_or_reads_the_source(bert_folder: Path) -> None:
    from pipeline.config import Config
    from pipeline.stages import tokenizer as stage

    config = Config()
    assert stage.inputs(config)["shard"].stage == "shard" and stage.files(config) == []
    config.tokenizer.source = str(bert_folder)
    assert stage.inputs(config) == {}
    assert stage.files(config) == [("vocab.txt", bert_folder / "vocab.txt")]
    config.tokenizer.lowercase = True
    with pytest.raises(UsageError, match=r"tokenizer\.source"):
        config.tokenizer.check()
