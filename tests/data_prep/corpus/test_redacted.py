"""Redacted strings reach no file: neither text, nor ids, groups, counts, vocabulary or cache."""

import json
from pathlib import Path
from typing import Any

import pytest

from data_prep.config import TokenizerConfig
from data_prep.corpus.build import make_shards
from data_prep.corpus.cache import PieceCache
from data_prep.tokenizers import Tokenizer
from data_prep.tokenizers.build import build_tokenizer, warn_of_split_symbols, with_symbols
from tests.data_prep.small_shards import config_for, digests, everything, shard

CANARIES = ("quillfeather@canary.example", "070-999 88 77", "19121212-1212", "Quillfeather", "K-77")
KINDS = ("wordpiece", "unigram", "bpe", "words", "spaced_words")
SYMBOLS = ["[EMAIL]", "[PHONE]", "[ID]", "[CASE]", "[NAME]"]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Notes whose every second sentence, id and group has personal data, and how to redact it."""
    root = tmp_path_factory.mktemp("notes")
    (root / "names.txt").write_text("Quillfeather\n")
    records = [
        {
            "id": f"{number}-quillfeather@canary.example",
            "patient": f"19121212-1212 {number % 30}",
            "text": f"Patient number {number} came in on a rainy day and left. Mail "
            "quillfeather@canary.example , call 070-999 88 77 , or ask for 19121212-1212 . "
            f"Mrs Quillfeather has case K-77 and {number} flowers in the old garden.",
        }
        for number in range(60)
    ]
    (root / "notes.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return {
        "paths": str(root / "notes.jsonl"),
        "group_field": "patient",
        "redact": ["email", "phone", "id"],
        "redact_names_file": str(root / "names.txt"),
        "redact_patterns": {"CASE": "K-[0-9]+"},
        "near_duplicates": 1.0,
    }


def test_canaries_are_in_no_output(keys: dict[str, Any], tmp_path: Path) -> None:
    config = config_for(**keys)
    out = tmp_path / "shard"
    out.mkdir()
    cache = PieceCache(tmp_path / "cache", {"notes.jsonl": "1"}, version=1, most_bytes=10**9)
    counts = make_shards(config, out, 3000, cache)
    assert counts["redacted"] == {"CASE": 60, "EMAIL": 60, "ID": 60, "NAME": 60, "PHONE": 60}
    assert counts["groups"]["train"] + counts["groups"]["heldout"] == 30
    assert config.redaction_symbols == SYMBOLS
    for kind in KINDS:
        (tmp_path / kind).mkdir()
        own = TokenizerConfig(kind, 80, workers=1)
        build_tokenizer(out, tmp_path / kind, with_symbols(own, SYMBOLS))
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 20
    for path in written:
        assert not [each for each in CANARIES if each.encode() in path.read_bytes()], path
    texts = [" ".join(section.sentences) for section in everything(out)]
    assert all("Mail [EMAIL] , call [PHONE]" in text for text in texts)
    assert len({section.id for section in everything(out)}) == 60


def test_the_same_bytes_with_two_workers(keys: dict[str, Any], tmp_path: Path) -> None:
    for workers in (1, 2):
        shard(tmp_path / str(workers), piece_bytes=3000, **{**keys, "workers": workers})
    assert digests(tmp_path / "1") == digests(tmp_path / "2")


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_tokenizer_keeps_symbols_whole(
    keys: dict[str, Any], tmp_path: Path, kind: str, lowercase: bool, caplog: Any
) -> None:
    shard(tmp_path / "shard", **keys)
    (tmp_path / "out").mkdir()
    config = TokenizerConfig(kind, 80, lowercase=lowercase, workers=1)
    config.check()
    build_tokenizer(tmp_path / "shard", tmp_path / "out", with_symbols(config, SYMBOLS))
    tokenizer = Tokenizer.load(tmp_path / "out")
    ids = tokenizer.encode(["call [PHONE] , or"])[0].tolist()
    assert "[phone]" in [tokenizer.piece(number).lower() for number in ids]
    if kind != "spaced_words":  # white space alone divides its words
        ids = tokenizer.encode(["call ([PHONE])."])[0].tolist()
        assert "[phone]" in [tokenizer.piece(number).lower() for number in ids]
    caplog.clear()
    warn_of_split_symbols(tokenizer, SYMBOLS)
    assert not caplog.records


def test_a_given_tokenizer_that_lacks_the_symbols_is_named(
    keys: dict[str, Any], tmp_path: Path, caplog: Any
) -> None:
    shard(tmp_path / "shard", **keys)
    (tmp_path / "out").mkdir()
    build_tokenizer(tmp_path / "shard", tmp_path / "out", TokenizerConfig("bpe", 80, workers=1))
    warn_of_split_symbols(Tokenizer.load(tmp_path / "out"), ["[EMAIL]", "[IP]"])
    assert "splits [EMAIL], [IP] into several tokens" in caplog.text
    assert "tokenizer.source" in caplog.text
