"""The proof of examples: sound rows pass, every kind of damage is found and its place named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_prep.config import TokenizerConfig
from data_prep.errors import SesameError
from data_prep.examples.build import build
from data_prep.examples.chunks import Chunk, ChunkStore, ChunkWriter
from data_prep.examples.masking import MaskRule
from data_prep.examples.validate import Rules, check, shard_chunks, validate
from data_prep.tokenizers import Tokenizer
from data_prep.tokenizers.build import build_tokenizer
from tests.data_prep.small_examples import WORDS, config, make_shards, make_tokenizer

Damage = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shards(tmp_path_factory.mktemp("corpus") / "shard")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tokenizer(tmp_path_factory.mktemp("tokenizer"), WORDS)


@pytest.fixture(scope="module")
def examples(shards: Path, tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("examples")
    build(shards, tokenizer, out, config())
    return out


def one_document(columns: dict[str, Any]) -> None:
    random = int(np.flatnonzero(columns["label"] == 1)[2])
    columns["documents"][random, 1] = columns["documents"][random, 0]


def other_document(columns: dict[str, Any]) -> None:
    columns["documents"][int(np.flatnonzero(columns["label"] == 0)[1]), 1] += 1


def uncounted_coin(columns: dict[str, Any]) -> None:
    columns["coin"][np.flatnonzero(columns["label"] == 0)[0]] = 0


def unknown_label(columns: dict[str, Any]) -> None:
    columns["label"][3] = 2


def masked_special(columns: dict[str, Any]) -> None:
    columns["target"][columns["target_examples"][3]] = 0


def replaced_by_special(columns: dict[str, Any]) -> None:
    columns["input"][4] = 3


def missing_prediction(columns: dict[str, Any]) -> None:
    cut = columns["target_examples"][3]
    columns["target"] = np.delete(columns["target"], cut)
    columns["input"] = np.delete(columns["input"], cut)
    columns["target_examples"] = columns["target_examples"].copy()
    columns["target_examples"][4:] -= 1


def no_start(columns: dict[str, Any]) -> None:
    columns["tokens"][columns["example_tokens"][2]] = 9


def no_end(columns: dict[str, Any]) -> None:
    columns["tokens"][columns["example_tokens"][2] - 1] = 9


def special_inside(columns: dict[str, Any]) -> None:
    columns["tokens"][1] = 4


def moved_border(columns: dict[str, Any]) -> None:
    columns["second"][2] += 1


def joined_rows(columns: dict[str, Any]) -> None:
    columns["row_examples"] = np.delete(columns["row_examples"], 2)


DAMAGES = {
    one_document: "a random segment is from the same document",
    other_document: "a next segment is from another document",
    uncounted_coin: "not chosen by the coin",
    unknown_label: "neither 0 nor 1",
    masked_special: "special token is a target",
    replaced_by_special: "not an ordinary token",
    missing_prediction: "number of predictions",
    no_start: r"does not start with \[CLS\]",
    no_end: r"does not end with \[SEP\]",
    special_inside: "special token is inside",
    moved_border: "between the segments",
    joined_rows: "more than 32|several examples",
}


def rewrite(source: Path, out: Path, damage: Damage, number: int | None) -> ChunkStore:
    """The training rows again, in sound files, with one chunk (or all) changed."""
    store = ChunkStore(source, "train")
    with ChunkWriter(
        out, "train", shard_size=40_000, chunk_rows=16, vocab_size=store.vocab_size, static=True
    ) as writer:
        for index in range(store.chunks):
            columns = {name: array.copy() for name, array in store.read(index).columns().items()}
            if number is None or index == number:
                damage(columns)
            writer.append(Chunk(**columns))
    return ChunkStore(out, "train")


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_the_proof_names_the_row_that_breaks_a_rule(
    damage: Damage, examples: Path, tokenizer: Path, tmp_path: Path
) -> None:
    number = ChunkStore(examples, "train").chunks - 3
    store = rewrite(examples, tmp_path, damage, number)
    tar = next(tar for tar in sorted(tmp_path.glob("*.tar")) if number in shard_chunks(tar))
    assert tar.name != "train-00000.tar"
    wanted = rf"{tar.name}: chunk {number}, row \d+: .*({DAMAGES[damage]})"
    with pytest.raises(SesameError, match=wanted):
        check(store, range(store.chunks), Rules(config(), Tokenizer.load(tokenizer), MaskRule()))


def all_masked(columns: dict[str, Any]) -> None:
    columns["input"][:] = 4


def all_kept(columns: dict[str, Any]) -> None:
    is_kept = np.arange(len(columns["input"])) % 5 == 0
    counts = np.diff(columns["target_examples"])
    places = np.repeat(columns["example_tokens"][:-1], counts) + columns["target"]
    columns["input"][:] = np.where(is_kept, columns["tokens"][places], 4)


def unfair_coin(columns: dict[str, Any]) -> None:
    columns["label"][:] = 1
    columns["documents"][:, 1] = columns["documents"][:, 0] + 1


@pytest.mark.parametrize(
    ("damage", "what"),
    [(all_masked, r"\[MASK\]"), (all_kept, "left as they are"), (unfair_coin, "by coin")],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_proof_finds_what_chance_would_not_do(
    damage: Damage, what: str, examples: Path, tokenizer: Path, tmp_path: Path
) -> None:
    rewrite(examples, tmp_path, damage, None)
    with pytest.raises(SesameError, match=what):
        validate(tmp_path, "train", Rules(config(), Tokenizer.load(tokenizer), MaskRule()))


def test_words_masked_in_part_are_found(shards: Path, tokenizer: Path, tmp_path: Path) -> None:
    """Rows masked by token, checked by the rule of whole words."""
    build(shards, tokenizer, tmp_path, config())
    rules = Rules(config(), Tokenizer.load(tokenizer), MaskRule(unit="word"))
    with pytest.raises(SesameError, match="only in part"):
        validate(tmp_path, "train", rules)


def test_another_tokenizer_is_refused(examples: Path, tmp_path: Path) -> None:
    make_tokenizer(tmp_path, [*WORDS, "more"])
    with pytest.raises(SesameError, match="vocabulary of"):
        validate(examples, "train", Rules(config(), Tokenizer.load(tmp_path), MaskRule()))


def test_ids_unlike_the_librarys_are_found(
    shards: Path, tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tokenizer whose fast way goes wrong once in a while does not get through."""
    encode = Tokenizer.encode_marked

    def careless(self: Tokenizer, texts: list[str]) -> Any:
        encoded = encode(self, texts)
        encoded.ids[::10] = 6
        return encoded

    monkeypatch.setattr(Tokenizer, "encode_marked", careless)
    with pytest.raises(SesameError, match=r"train-00000\.tar: chunk 0, row \d+: .*library"):
        build(shards, tokenizer, tmp_path, config())


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_lossless_tokenizers_give_sentences_back_or_are_refused(
    kind: str, shards: Path, tmp_path: Path
) -> None:
    tokenizer, out = tmp_path / "tokenizer", tmp_path / "out"
    for folder in (tokenizer, out):
        folder.mkdir()
    build_tokenizer(shards, tokenizer, TokenizerConfig(kind=kind, vocab_size=60, workers=1))
    build(shards, tokenizer, out, config())
    checked = json.loads((out / "statistics.json").read_text())["train"]["checked"]
    assert checked["decoded"] > 0

    # A decoder that forgets a letter: the ids stay right, the text does not.
    path = tokenizer / "tokenizer.json"
    described = json.loads(path.read_text())
    forget = {"type": "Replace", "pattern": {"String": "e"}, "content": ""}
    described["decoder"] = {"type": "Sequence", "decoders": [described["decoder"], forget]}
    path.write_text(json.dumps(described))
    again = tmp_path / "again"
    again.mkdir()
    with pytest.raises(SesameError, match="differs when its tokens are decoded"):
        build(shards, tokenizer, again, config())
