"""Examples from shards to rows: the same bytes whoever makes them, every outcome counted."""

import json
import shutil
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_prep.corpus.shard_format import Origin, StoredSection, parts, read_sections, write_shard
from data_prep.errors import SesameError
from data_prep.examples import build as building
from data_prep.examples import common_passes
from data_prep.examples.build import build
from data_prep.examples.chunks import ChunkStore
from data_prep.tokenizers import Tokenizer
from tests.data_prep.small_examples import (
    LENGTH,
    WORDS,
    config,
    make_sentences,
    make_shards,
    make_tokenizer,
    read_all,
    write_shards,
)


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


@pytest.mark.parametrize(
    "stage",
    [
        "make_text", "make_openings", "write_table", "make_part", "write_tar", "check_sources",
        "rmtree",
    ],
)  # fmt: skip
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

    shared = ("make_text", "write_tar")
    place: Any = shutil if stage == "rmtree" else common_passes if stage in shared else building
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
        patch.setattr(building, "make_openings", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            build(shards, tokenizer, tmp_path, config())
    monkeypatch.setattr(common_passes, "make_text", lambda *_: 1 / 0)
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


@pytest.mark.parametrize(
    "other",
    [{"mask_rate": 0.3}, {"mask_unit": "word"}, {"mask_unit": "span", "max_masks": 3}],
    ids=lambda other: next(iter(other)),
)
@pytest.mark.parametrize("masking", ["static", "dynamic"])
def test_heldout_masks_follow_one_rule_whatever_the_training_masks(
    other: dict[str, Any],
    masking: str,
    shards: Path,
    tokenizer: Path,
    examples: Path,
    tmp_path: Path,
) -> None:
    """Otherwise a sweep over mask rates would score each rate on predictions of its own."""
    build(shards, tokenizer, tmp_path, config(masking=masking, **other))
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


def test_a_document_is_used_as_often_as_its_weight_says(tokenizer: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    weights = [0.0, 0.5, 1.0, 2.5]
    sections = [
        StoredSection(
            number, 0, "\n".join(make_sentences(rng, 9)).encode(), Origin("", "x").encode(), 0, 0, w
        )
        for number, w in enumerate(weights * 40)
    ]
    write_shard(tmp_path / "train-00000.tar", sections)
    write_shards(tmp_path, "heldout", [[make_sentences(rng, 30)] for _ in range(3)], 999, 1)
    out = tmp_path / "out"
    build(tmp_path, tokenizer, out, config(pairs="none", duplicates=2))
    pieces: Counter[int] = Counter()
    for chunk in read_all(out):
        for document, length in zip(
            chunk.documents[:, 0], np.diff(chunk.example_tokens) - 2, strict=True
        ):
            pieces[int(document)] += int(length)
    shares = [sum(pieces[document] for document in range(kind, 160, 4)) for kind in range(4)]
    assert shares[0] == 0
    assert all(pieces[document] for document in range(1, 160, 4)), "half of two copies is one"
    assert 1.7 < shares[2] / shares[1] < 2.3
    assert 2.1 < shares[3] / shares[2] < 2.9
