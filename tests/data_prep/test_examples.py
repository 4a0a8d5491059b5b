"""Examples from shards to rows: reproducible, counted, proven; the proof finds every damage."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_prep.chunks import Chunk, ChunkStore, ChunkWriter
from data_prep.config import ExamplesConfig
from data_prep.errors import SesameError
from data_prep.examples import build as building
from data_prep.examples.build import build
from data_prep.examples.validate import Rules, check, shard_chunks, validate
from data_prep.shards import metadata_tail, write_shard
from data_prep.tokenizers import Tokenizer
from data_prep.tokenizers.huggingface import Specials, from_vocabulary, write_folder

LENGTH = 32
WORDS = [
    "the",
    "a",
    "sea",
    "ship",
    "cap",
    "##tain",
    "##s",
    "wind",
    "blow",
    "##ing",
    "old",
    "man",
    "wave",
    ".",
    ",",
    "[",
    "]",
    "MASK",
]
Documents = list[list[list[str]]]  # sentences by document and section


def make_sentences(rng: np.random.Generator, count: int, longest: int = 14) -> list[str]:
    words = [word for word in WORDS if not word.startswith("##")] + ["captains", "blowing", "ñ"]
    words.append("[MASK]")
    return [" ".join(rng.choice(words, rng.integers(1, longest))) + " ." for _ in range(count)]


def write_shards(folder: Path, split: str, documents: Documents, first: int, tars: int) -> None:
    """Shards with one section after another, `tars` files for a split."""
    sections = [
        (number, section, "\n".join(sentences).encode(), metadata_tail("", "test"), 0, 0)
        for number, document in enumerate(documents, first)
        for section, sentences in enumerate(document)
    ]
    for tar, part in enumerate(np.array_split(np.arange(len(sections)), tars)):
        write_shard(folder / f"{split}-{tar:05d}.tar", (sections[index] for index in part))


def make_shards(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    folder.mkdir()
    train = [[make_sentences(rng, 40), make_sentences(rng, 25)] for _ in range(12)]
    train += [[make_sentences(rng, 1)], [["\x00"]], [make_sentences(rng, 2, 90)]]
    write_shards(folder, "train", train, 0, tars=5)
    heldout = [[make_sentences(rng, 30)] for _ in range(6)]
    write_shards(folder, "heldout", heldout, len(train), tars=1)
    return folder


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shards(tmp_path_factory.mktemp("corpus") / "shard")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    vocabulary = [*Specials().names(), *WORDS]
    write_folder(folder, from_vocabulary(vocabulary, False, False, Specials()), Specials(), None)
    return folder


def config(**changes: Any) -> ExamplesConfig:
    usual = ExamplesConfig(
        max_seq_length=LENGTH, masking="static", chunk_rows=16, shard_size=40_000, seed=7, workers=1
    )
    return replace(usual, **changes)


@pytest.fixture(scope="module")
def examples(shards: Path, tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("examples")
    build(shards, tokenizer, out, config())
    return out


def read_all(folder: Path, split: str = "train") -> list[Chunk]:
    store = ChunkStore(folder, split)
    return [store.read(number) for number in range(store.chunks)]


def hashes(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def segment_lists(folder: Path, split: str = "train") -> list[tuple[int, ...]]:
    """Every example's ids."""
    return [
        tuple(chunk.tokens[a:b].tolist())
        for chunk in read_all(folder, split)
        for a, b in zip(chunk.example_tokens[:-1], chunk.example_tokens[1:], strict=True)
    ]


@pytest.mark.parametrize("workers", [2, 5])
def test_bytes_do_not_depend_on_workers(
    workers: int, shards: Path, tokenizer: Path, examples: Path, tmp_path: Path
) -> None:
    build(shards, tokenizer, tmp_path, config(workers=workers))
    assert hashes(tmp_path) == hashes(examples)


@pytest.mark.parametrize("stage", ["make_text", "make_pool", "make_part", "validate", "rmtree"])
def test_a_killed_build_goes_on_and_gives_the_same_bytes(
    stage: str,
    shards: Path,
    tokenizer: Path,
    examples: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []

    def work_once(*arguments: Any, **options: Any) -> Any:
        if calls:
            raise KeyboardInterrupt
        calls.append(None)
        return original(*arguments, **options)

    place = shutil if stage == "rmtree" else building
    original = getattr(place, stage)
    with monkeypatch.context() as patch:
        patch.setattr(place, stage, work_once)
        with pytest.raises(KeyboardInterrupt):
            build(shards, tokenizer, tmp_path, config())
    assert hashes(tmp_path) != hashes(examples)
    build(shards, tokenizer, tmp_path, config())
    assert hashes(tmp_path) == hashes(examples)


def test_finished_pieces_are_not_made_again(
    shards: Path, tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(building, "make_pool", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            build(shards, tokenizer, tmp_path, config())
    monkeypatch.setattr(building, "make_text", lambda *_: 1 / 0)
    assert build(shards, tokenizer, tmp_path, config())["train"]["rows"] > 0


def test_counts_are_those_of_the_rows(shards: Path, tokenizer: Path, tmp_path: Path) -> None:
    counts = build(shards, tokenizer, tmp_path, config())
    facts = json.loads((tmp_path / "statistics.json").read_text())
    for split in ("train", "heldout"):
        store, chunks = ChunkStore(tmp_path, split), read_all(tmp_path, split)
        own = counts[split]
        assert (own["rows"], own["examples"], own["tokens"]) == (
            store.rows, store.examples, store.tokens,
        )  # fmt: skip
        labels = np.concatenate([chunk.label for chunk in chunks])
        coins = np.concatenate([chunk.coin for chunk in chunks])
        assert own["next"] == (labels == 0).sum()
        assert own["other"] == ((labels == 1) & (coins == 1)).sum()
        assert own["forced"] == (coins == 0).sum() > 0
        assert own["predictions"] == sum(len(chunk.target) for chunk in chunks)
        assert own["masked"] + own["kept"] + own["replaced"] == own["predictions"]
        assert own["mean_tokens_per_row"] == pytest.approx(store.tokens / store.rows, abs=1e-6)
        assert own["efficiency"]["unpacked"] == pytest.approx(
            store.tokens / (store.rows * LENGTH), abs=1e-6
        )
        assert own["efficiency"]["packed"] >= own["efficiency"]["unpacked"]
        lengths = np.concatenate([np.diff(chunk.example_tokens) for chunk in chunks])
        assert facts[split]["lengths"] == np.bincount(lengths, minlength=LENGTH + 1).tolist()
        assert own["checked"]["rows"] == store.rows
        assert own["checked"]["sections"] > 0 and own["checked"]["segments"] > 0
    assert counts["train"]["empty_sentences"] == 1 and counts["train"]["empty_sections"] == 1
    assert not list(tmp_path.glob(".*"))


def test_examples_are_sentences_as_the_library_tokenizes_them(
    shards: Path, tokenizer: Path, examples: Path
) -> None:
    """Every first segment is found in its own document, piece for piece; "[MASK]" is text."""
    from data_prep.shards import parts, read_sections

    library = Tokenizer.load(tokenizer).library
    texts: dict[int, list[int]] = {}
    for part in parts(shards, "train"):
        for section in read_sections(part.path, part.start, part.end):
            ids = texts.setdefault(section.document, [])
            for sentence in section.sentences:
                ids += library.encode(sentence, add_special_tokens=False).ids
            ids.append(-1)
    spelled = {document: f" {' '.join(map(str, ids))} " for document, ids in texts.items()}
    for chunk in read_all(examples):
        for index in range(chunk.examples):
            begin, end = chunk.example_tokens[index : index + 2]
            middle = begin + int(chunk.second[index])
            for document, segment in zip(
                chunk.documents[index].tolist(),
                (chunk.tokens[begin + 1 : middle - 1], chunk.tokens[middle : end - 1]),
                strict=True,
            ):
                assert f" {' '.join(map(str, segment))} " in spelled[document]


def test_heldout_masks_are_fixed_and_training_ones_only_if_static(
    shards: Path, tokenizer: Path, examples: Path, tmp_path: Path
) -> None:
    build(shards, tokenizer, tmp_path, config(masking="dynamic", duplicates=2))
    assert not ChunkStore(tmp_path, "train").static
    assert ChunkStore(tmp_path, "heldout").static
    assert ChunkStore(tmp_path, "heldout").digest == ChunkStore(examples, "heldout").digest


def test_heldout_and_training_text_never_mix(examples: Path) -> None:
    train = np.concatenate([chunk.documents for chunk in read_all(examples)])
    heldout = np.concatenate([chunk.documents for chunk in read_all(examples, "heldout")])
    assert train.max() < heldout.min()


def test_duplicates_are_paired_and_masked_anew(
    shards: Path, tokenizer: Path, examples: Path, tmp_path: Path
) -> None:
    counts = build(shards, tokenizer, tmp_path, config(duplicates=2))
    once, twice = segment_lists(examples), segment_lists(tmp_path)
    assert twice[: len(once)] == once
    assert twice[len(once) :] != once
    assert (
        counts["train"]["sections"]
        == json.loads((examples / "statistics.json").read_text())["train"]["sections"]
    )


def test_duplicates_of_full_sentences_differ_in_masks_alone(
    shards: Path, tokenizer: Path, tmp_path: Path
) -> None:
    build(shards, tokenizer, tmp_path, config(duplicates=2, pairs="none", chunk_rows=10_000))
    (chunk,) = read_all(tmp_path)
    half = chunk.rows // 2
    first, second = chunk.between(0, half), chunk.between(half, chunk.rows)
    assert first.tokens.tolist() == second.tokens.tolist()
    assert first.target is not None and second.target is not None
    assert first.target.tolist() != second.target.tolist()


def test_packing_moves_examples_together_and_changes_none(
    shards: Path, tokenizer: Path, examples: Path, tmp_path: Path
) -> None:
    counts = build(shards, tokenizer, tmp_path, config(packing=True))
    assert sorted(segment_lists(tmp_path)) == sorted(segment_lists(examples))
    assert ChunkStore(tmp_path, "train").rows < ChunkStore(examples, "train").rows
    assert counts["train"]["rows"] == counts["train"]["packed_rows"]


@pytest.mark.parametrize("unit", ["token", "word", "span"])
@pytest.mark.parametrize("pairs", ["nsp", "sop", "none"])
def test_every_combination_passes_its_own_proof(
    unit: str, pairs: str, shards: Path, tokenizer: Path, tmp_path: Path
) -> None:
    chosen = config(pairs=pairs, mask_unit=unit, max_masks=4, packing=True)
    counts = build(shards, tokenizer, tmp_path, chosen)
    assert counts["train"]["checked"]["rows"] == counts["train"]["rows"] > 0


def test_a_single_document_cannot_have_random_next_sentences(
    tokenizer: Path, tmp_path: Path
) -> None:
    rng = np.random.default_rng(1)
    folder = tmp_path / "shard"
    folder.mkdir()
    write_shards(folder, "train", [[make_sentences(rng, 30), make_sentences(rng, 30)]], 0, 2)
    write_shards(folder, "heldout", [[make_sentences(rng, 30)]], 0, 1)
    for pairs in ("sop", "none"):
        out = tmp_path / pairs
        out.mkdir()
        build(folder, tokenizer, out, config(pairs=pairs))
    out = tmp_path / "nsp"
    out.mkdir()
    with pytest.raises(SesameError, match=r"one document.*examples\.pairs=sop"):
        build(folder, tokenizer, out, config())


def test_one_heldout_document_draws_from_the_training_text(tokenizer: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    folder, out = tmp_path / "shard", tmp_path / "out"
    folder.mkdir()
    out.mkdir()
    write_shards(folder, "train", [[make_sentences(rng, 30)] for _ in range(3)], 0, 1)
    write_shards(folder, "heldout", [[make_sentences(rng, 30)]], 3, 1)
    assert build(folder, tokenizer, out, config())["heldout"]["other"] > 0


def test_documents_of_one_sentence_are_forced_pairs(tokenizer: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    folder, out = tmp_path / "shard", tmp_path / "out"
    folder.mkdir()
    out.mkdir()
    write_shards(folder, "train", [[make_sentences(rng, 1)] for _ in range(20)], 0, 3)
    counts = build(folder, tokenizer, out, config())
    assert counts["train"]["forced"] == counts["train"]["examples"] == 20
    assert counts["heldout"]["rows"] == 0


def test_text_without_any_piece_is_an_error(tokenizer: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "shard", tmp_path / "out"
    folder.mkdir()
    out.mkdir()
    write_shards(folder, "train", [[["\x00"]], [["\x01"]]], 0, 1)
    with pytest.raises(SesameError, match="no example"):
        build(folder, tokenizer, out, config(pairs="none"))


Damage = Callable[[dict[str, Any]], None]


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
    one_document: "a random segment is of the same document",
    other_document: "a next segment is of another document",
    uncounted_coin: "not chosen by the coin",
    unknown_label: "neither 0 nor 1",
    masked_special: "special piece is to be predicted",
    replaced_by_special: "not an ordinary piece",
    missing_prediction: "number of predictions",
    no_start: r"does not start with \[CLS\]",
    no_end: r"does not end with \[SEP\]",
    special_inside: "special piece stands inside",
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
        check(store, range(store.chunks), Rules(config(), Tokenizer.load(tokenizer)))


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
        validate(tmp_path, "train", Rules(config(), Tokenizer.load(tokenizer)))


def test_words_masked_in_part_are_found(shards: Path, tokenizer: Path, tmp_path: Path) -> None:
    """Rows masked by token, checked by the rule of whole words."""
    build(shards, tokenizer, tmp_path, config())
    rules = Rules(config(mask_unit="word"), Tokenizer.load(tokenizer))
    with pytest.raises(SesameError, match="only in part"):
        validate(tmp_path, "train", rules)


def test_another_tokenizer_is_refused(examples: Path, tmp_path: Path) -> None:
    vocabulary = [*Specials().names(), *WORDS, "more"]
    write_folder(tmp_path, from_vocabulary(vocabulary, False, False, Specials()), Specials(), None)
    with pytest.raises(SesameError, match="vocabulary of"):
        validate(examples, "train", Rules(config(), Tokenizer.load(tmp_path)))


def test_ids_unlike_the_librarys_are_found(
    shards: Path, tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tokenizer whose fast way goes wrong once in a while does not get through."""
    encode = Tokenizer.encode

    def careless(self: Tokenizer, texts: list[str]) -> Any:
        encoded = encode(self, texts)
        encoded.ids[::10] = 6
        return encoded

    monkeypatch.setattr(Tokenizer, "encode", careless)
    with pytest.raises(SesameError, match=r"train-00000\.tar: chunk 0, row \d+: .*library"):
        build(shards, tokenizer, tmp_path, config())
