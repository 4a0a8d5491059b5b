"""What repeats is dropped: equal documents and paragraphs, near documents, on either split."""

import io
import json
import random
import tempfile
import tracemalloc
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.config import CorpusConfig
from data_prep.corpus.build import make_shards
from data_prep.corpus.clean_files import (
    CleanDocument,
    CleanFileWriter,
    KeptParagraphs,
    list_clean_files,
)
from data_prep.corpus.deduplicate import SignatureTable
from data_prep.corpus.minhash import band_hashes, rows_per_band, signature
from data_prep.corpus.shard_format import Origin, parts, read_sections
from data_prep.errors import UsageError

WORDS = [f"{first}{last}" for first in "bdfgklmnprst" for last in ("an", "el", "ir", "os", "u")]


def paragraph(rng: random.Random, sentences: int = 3) -> str:
    return " ".join(
        " ".join(rng.choices(WORDS, k=8)).capitalize() + " indeed." for _ in range(sentences)
    )


def shard(folder: Path, texts: list[str], piece_bytes: int = 5000, **values: Any) -> dict[str, Any]:
    folder.mkdir(parents=True)
    lines = [json.dumps({"id": str(n), "text": text}) + "\n" for n, text in enumerate(texts)]
    (folder / "x.jsonl").write_text("".join(lines))
    config = CorpusConfig(**{"paths": str(folder / "x.jsonl"), "workers": 1, **values})
    return make_shards(config, folder, piece_bytes)


def written(folder: Path, split: str) -> dict[str, list[list[str]]]:
    """The sentences of each document's sections."""
    documents: dict[str, list[list[str]]] = {}
    for part in parts(folder, split):
        for section in read_sections(part.path, part.start, part.end):
            documents.setdefault(section.id, []).append(section.sentences)
    return documents


def sentences_of(folder: Path, split: str) -> Counter[str]:
    sections = [section for own in written(folder, split).values() for section in own]
    return Counter(sentence for section in sections for sentence in section)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """60 documents of own paragraphs, between them notices that many have."""
    rng = random.Random(2)
    notices = [paragraph(rng, 2) for _ in range(4)]
    return [
        "\n\n".join([paragraph(rng), notices[number % 4], "Yes, sir.", paragraph(rng), notices[0]])
        for number in range(60)
    ]


def test_paragraphs_are_kept_once_and_counters_balance(tmp_path: Path, texts: list[str]) -> None:
    emptied = [texts[0].split("\n\n")[1], "\n\n".join(texts[5].split("\n\n")[:2])]
    counts = shard(tmp_path / "out", [*texts, *emptied])
    paragraphs, documents = counts["paragraphs"], counts["documents"]
    # Of five paragraphs each of 60, the notices repeat: 59 of one kind twice over, the rest once.
    assert paragraphs == {
        "read": 303, "kept": 60 * 3 + 4, "dropped": {"duplicate": 303 - 184},
    }  # fmt: skip
    assert documents["dropped"] == {"duplicate_paragraphs": 2} and documents["kept"] == 60
    found = sentences_of(tmp_path / "out", "train") + sentences_of(tmp_path / "out", "heldout")
    assert found.pop("Yes, sir.") == 60  # too short to be a copy
    assert set(found.values()) == {1}
    assert sum(counts["sentences"].values()) == 60 * 7 + 4 * 2
    everything = written(tmp_path / "out", "train") | written(tmp_path / "out", "heldout")
    assert everything["0"][0][3:5] == sentences_of_text(texts[0].split("\n\n")[1])
    assert all(len(everything[str(number)][0]) == 7 for number in range(4, 60))


def sentences_of_text(text: str) -> list[str]:
    return [f"{sentence}." for sentence in text.removesuffix(".").split(". ")]


def test_nothing_held_out_is_trained_on(tmp_path: Path, texts: list[str]) -> None:
    """Each document shares a paragraph with the next; all are copied once, a word changed."""
    shared = [
        "\n\n".join([texts[n].split("\n\n")[0], texts[(n + 1) % 60].split("\n\n")[0]])
        for n in range(60)
    ]
    shard(tmp_path / "out", [*texts, *shared, *shared])
    held = sentences_of(tmp_path / "out", "heldout")
    del held["Yes, sir."]
    assert held and not set(held) & set(sentences_of(tmp_path / "out", "train"))


@pytest.mark.parametrize(("files", "buckets", "rows"), [(1, 4, 7), (3, 1, 1 << 20), (2, 16, 50)])
def test_repeats_do_not_depend_on_groups_buckets_and_blocks(
    files: int, buckets: int, rows: int, tmp_path: Path, texts: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    changed = [f"{text} A word more." for text in texts[:20]]
    paragraphs = [f"{paragraph(random.Random(n))}\n\n{texts[n]}" for n in range(20, 40)]
    every = [*texts, *texts[:9], *changed, *paragraphs]
    usual = shard(tmp_path / "usual", every, near_duplicates=0.8)
    assert min(usual["documents"]["dropped"][why] for why in ("duplicate", "near_duplicate")) > 0
    assert usual["paragraphs"]["dropped"]["duplicate"] > 0
    for name, value in (
        ("GROUP_FILES", files), ("BUCKETS_PER_GROUP", buckets), ("BLOCK_ROWS", rows),
    ):  # fmt: skip
        monkeypatch.setattr(f"data_prep.corpus.matching.{name}", value)
    assert shard(tmp_path / "other", every, near_duplicates=0.8) == usual
    for split in ("train", "heldout"):
        assert written(tmp_path / "other", split) == written(tmp_path / "usual", split)


def test_how_much_is_compared_is_a_setting(tmp_path: Path, texts: list[str]) -> None:
    counts = shard(tmp_path / "a", [*texts, texts[3]], deduplicate="documents")
    assert counts["documents"]["dropped"] == {"duplicate": 1}
    assert counts["paragraphs"] == {"read": 305, "kept": 300, "dropped": {"document": 5}}
    counts = shard(tmp_path / "b", [*texts, texts[3]], deduplicate="none")
    assert counts["documents"]["kept"] == 61 and counts["paragraphs"]["kept"] == 305
    shard(tmp_path / "c", texts, duplicate_characters=0)
    found = sentences_of(tmp_path / "c", "train") + sentences_of(tmp_path / "c", "heldout")
    assert found["Yes, sir."] == 1
    with pytest.raises(UsageError, match=r"corpus\.near_duplicates=0\.8.*corpus\.deduplicate=none"):
        CorpusConfig(deduplicate="none", near_duplicates=0.8).check()


def test_a_paragraph_cut_by_a_section_is_one(
    tmp_path: Path, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("data_prep.corpus.clean_files.SECTION_SENTENCES", 4)
    rng = random.Random(3)
    long = paragraph(rng, 11)
    documents = [f"{paragraph(rng, 2)}\n\n{long}\n\nIn between.", f"{long}\n\n{paragraph(rng, 2)}"]
    for number, order in enumerate((documents, documents[::-1])):
        counts = shard(tmp_path / str(number), [*order, *texts[:5]])
        found = sentences_of(tmp_path / str(number), "train")
        found += sentences_of(tmp_path / str(number), "heldout")
        assert counts["paragraphs"]["dropped"]["duplicate"] >= 1
        assert all(found[sentence] == 1 for sentence in sentences_of_text(long))
        sections = [section for own in written(tmp_path / str(number), "train").values()
                    for section in own]  # fmt: skip
        assert all(sections), "no section is written empty"


def test_near_documents_go_where_asked(tmp_path: Path) -> None:
    rng = random.Random(5)
    texts = [paragraph(rng, 12) for _ in range(80)]
    near = [f"{text} {paragraph(rng, 1)}" for text in texts[:20]]  # about 0.92 of it the same
    far = [f"{text[: len(text) // 3]} {paragraph(rng, 8)}" for text in texts[20:40]]
    everything = [*texts, *near, *far]
    counts = shard(tmp_path / "a", everything, near_duplicates=0.8)
    assert counts["documents"]["dropped"] == {"near_duplicate": 20}
    kept = set(written(tmp_path / "a", "train")) | set(written(tmp_path / "a", "heldout"))
    assert kept == {str(number) for number in [*range(80), *range(100, 120)]}
    other = shard(tmp_path / "b", everything, 100_000, near_duplicates=0.8, workers=2)
    assert other == counts


@pytest.mark.parametrize("text", ["one", "", "这是一个很长的句子没有空格", "A b c d e f g."])
def test_signatures_are_the_same_in_any_process(text: str) -> None:
    made = signature(text)
    assert made.shape == (1, 128) and made.dtype == np.uint32
    assert np.array_equal(made, signature(text.upper()))


def test_bands_find_pairs_at_the_threshold() -> None:
    for threshold in (0.3, 0.5, 0.8, 0.95, 1.0):
        rows = rows_per_band(threshold)
        assert 1 - (1 - threshold**rows) ** (128 // rows) >= (0.98 if rows > 1 else 0)
    assert rows_per_band(0.8) == 7
    signatures = np.stack([np.arange(128), np.arange(128)]).astype(np.uint32)
    signatures[1, :64] += 1
    equal = [first == second for first, second in band_hashes(signatures, 8)]
    assert equal == [False] * 8 + [True] * 8


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize(("held_rows", "buckets"), [(64, 256), (64, 20), (1 << 19, 256)])
def test_the_table_finds_every_repeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_rows: int, buckets: int, most: int
) -> None:
    """Also in buckets that hold many times what is read at once, and in two levels of buckets."""
    monkeypatch.setattr("data_prep.corpus.deduplicate.HELD_ROWS", held_rows)
    monkeypatch.setattr("data_prep.corpus.deduplicate.MOST_BUCKETS", buckets)
    rng = np.random.default_rng(0)
    keys = rng.integers(0, 3000, (2, 10_000)).astype(np.uint64) // np.uint64(30)
    keys[:, 2000:7000] = keys[:, :1]
    table = SignatureTable(tmp_path / "table", 10_000)
    for first in range(0, 10_000, 900):
        some = slice(first, first + 900)
        table.add(keys[0, some], keys[1, some], np.arange(10_000)[some])
    found = [
        pair
        for batch in table.repeats(most)
        for pair in zip(*(column.tolist() for column in batch), strict=True)
    ]
    seen: dict[tuple[int, int], list[int]] = {}
    expected = []
    for number, key in enumerate(zip(*keys.tolist(), strict=True)):
        firsts = seen.setdefault(key, [])
        expected += [(number, first) for first in firsts[:most]]
        firsts.append(number)
    assert sorted(found) == expected
    assert not (tmp_path / "table").exists()


def test_files_are_opened_in_proportion_to_the_signatures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one level every flush opened most buckets: opens grew with the square of the rows."""
    monkeypatch.setattr("data_prep.corpus.deduplicate.HELD_ROWS", 128)
    monkeypatch.setattr("data_prep.corpus.deduplicate.MOST_BUCKETS", 16)
    opens = []
    for count in (16_000, 32_000, 64_000, 128_000):
        opened = 0

        def counting(*arguments: Any, **named: Any) -> Any:
            nonlocal opened
            opened += 1
            return io.open(*arguments, **named)  # noqa: UP020

        monkeypatch.setattr("data_prep.corpus.deduplicate.open", counting, raising=False)
        table = SignatureTable(tmp_path / str(count), count)
        keys = np.random.default_rng(0).integers(0, 1 << 60, (2, count)).astype(np.uint64)
        for first in range(0, count, 500):
            some = slice(first, first + 500)
            table.add(keys[0, some], keys[1, some], np.arange(count)[some])
        assert sum(len(numbers) for numbers, _ in table.repeats()) == 0
        opens.append(opened)
    # Twice the rows: twice the flushes, each into at most 16 files, on both levels.
    assert all(after < 2.3 * before for before, after in pairwise(opens))


def test_an_empty_table_has_no_repeats(tmp_path: Path) -> None:
    assert list(SignatureTable(tmp_path / "table", 0).repeats()) == []


@pytest.mark.parametrize("alike", [0.2, 0.9])
def test_ten_times_the_signatures_take_no_more_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alike: float
) -> None:
    """With a small limit, so that few rows are over it; also where most are one notice's."""
    monkeypatch.setattr("data_prep.corpus.deduplicate.HELD_ROWS", 1 << 13)

    def peak(count: int) -> int:
        rng = np.random.default_rng(count)
        table = SignatureTable(tmp_path / "table", count)
        tracemalloc.start()
        for first in range(0, count, 4000):
            keys = rng.integers(0, 1 << 62, (2, 4000)).astype(np.uint64)
            keys[:, : int(alike * 4000)] = 7
            table.add(*keys, first + np.arange(4000))
        repeated = sum(len(numbers) for numbers, _ in table.repeats())
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert repeated == alike * count - 1
        return most

    _, few, many = map(peak, (8000, 80_000, 800_000))  # the first also imports
    assert many < 1.2 * few  # small buckets are less alike in size than large ones


@given(st.lists(st.lists(st.text("aé", min_size=1), min_size=1), min_size=1), st.randoms())
def test_the_text_without_dropped_paragraphs_has_the_size_that_its_table_states(
    paragraphs: list[list[str]], rng: random.Random
) -> None:
    origin = Origin("id", "file")
    with tempfile.TemporaryDirectory() as folder:
        with CleanFileWriter(Path(folder)) as writer:
            for _ in range(2):
                writer.add(CleanDocument(paragraphs, origin, bytes(16)))
        (file,) = list_clean_files([Path(folder)])
        rows = file.paragraphs()
        dropped = np.array([rng.random() < 0.5 for _ in rows])
        kept = KeptParagraphs(file.sections(), rows, dropped)
        with open(file.text, "rb") as stream:
            for section, row in enumerate(kept.sections()):
                text, read_origin = kept.read(stream, section)
                own = dropped[section * len(paragraphs) : (section + 1) * len(paragraphs)]
                left = ["\n".join(p) for p, gone in zip(paragraphs, own, strict=True) if not gone]
                assert read_origin == origin.encode()
                assert text.decode() == "\n\n".join(left) + "\n"
                assert row["paragraphs"] == len(left)
                if left:
                    assert row["text_bytes"] == len(text)
