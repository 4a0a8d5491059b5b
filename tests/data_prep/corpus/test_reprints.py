"""Reprints are found despite OCR errors, and no near-duplicate of held-out text is trained on."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_prep.config import CorpusConfig
from data_prep.corpus import repeats
from data_prep.corpus.matching import Group
from data_prep.corpus.minhash import letter_shingles, signature
from data_prep.errors import UsageError
from tests.data_prep.small_shards import sections, shard

RNG = random.Random(11)
SYLLABLES = [a + b for a in "bdfgklmnprstvh" for b in ("a", "e", "i", "o", "u", "an", "er", "ik")]
WORDS = ["".join(RNG.choices(SYLLABLES, k=RNG.randint(1, 4))) for _ in range(3000)]
MISREAD = ("", "e", "c", "rn", "li", "1", " ", ".", "ö", "-")


def article(rng: random.Random, words: int = 150) -> str:
    return " ".join(rng.choices(WORDS, k=words)).capitalize() + "."


def scan(text: str, rng: random.Random, rate: float = 0.02) -> str:
    """Misread characters: wrong, missing, doubled, joined and divided ones."""
    return "".join(rng.choice(MISREAD) if rng.random() < rate else letter for letter in text)


def write(folder: Path, texts: list[str]) -> Path:
    folder.mkdir()
    lines = (json.dumps({"id": str(n), "text": text}) + "\n" for n, text in enumerate(texts))
    (folder / "scans.jsonl").write_text("".join(lines))
    return folder / "scans.jsonl"


def test_reprints_with_two_percent_errors_are_found_and_other_texts_stay(tmp_path: Path) -> None:
    rng = random.Random(1)
    articles = [article(rng) for _ in range(100)]
    scans = [scan(text, rng) for text in [*articles, *articles[:50]]]
    path = write(tmp_path / "in", scans)
    keys = {"near_duplicates": 0.5, "languages": "none"}
    counts = shard(tmp_path / "a", path, near_duplicates_over="characters", **keys)
    dropped = counts["documents"]["dropped"]["near_duplicate"]
    assert 46 <= dropped <= 50, "at 0.5 some pairs lie on the edge"
    kept = {int(s.id) for s in [*sections(tmp_path / "a"), *sections(tmp_path / "a", "heldout")]}
    assert kept >= set(range(100)), "different articles stay"
    counts = shard(tmp_path / "b", path, near_duplicates_over="words", **keys)
    assert counts["documents"]["dropped"].get("near_duplicate", 0) < 10
    other = shard(
        tmp_path / "c", path, 500_000, near_duplicates_over="characters", workers=2, **keys
    )
    assert other["documents"]["dropped"]["near_duplicate"] == dropped


def variant(text: str, rng: random.Random, share: float) -> str:
    """Replace a share of the words, such as the fields of a form letter."""
    return " ".join(rng.choice(WORDS) if rng.random() < share else w for w in text.split())


@pytest.mark.parametrize(
    ("over", "threshold", "changed"), [("words", 0.6, 0.1), ("characters", 0.5, 0.19)]
)
def test_no_near_duplicate_crosses_into_the_held_out_part(
    tmp_path: Path, over: str, threshold: float, changed: float
) -> None:
    """Families of letters whose members are about as similar as the threshold, compared in pairs.

    The first document of a band is often a member that is just not similar enough.
    """
    rng = random.Random(7)
    letters = [variant(base, rng, changed) for base in [article(rng)] * 300]
    letters += [article(rng) for _ in range(100)]
    rng.shuffle(letters)
    keys = {"near_duplicates": threshold, "near_duplicates_over": over, "languages": "none"}
    shard(tmp_path / "out", write(tmp_path / "in", letters), **keys)
    held, trained = (
        np.concatenate([signature(" ".join(each.sentences), over) for each in split])
        for split in (sections(tmp_path / "out", "heldout"), sections(tmp_path / "out"))
    )
    similarity = (held[:, None] == trained[None]).mean(axis=2)
    assert len(held) > 5 and similarity.max() < threshold


def test_letters_are_compared_without_what_is_between_them() -> None:
    assert letter_shingles("Ab-cd, ef\ngh") == ["abcdefg", "bcdefgh"]
    assert letter_shingles("ab") == ["ab"] and letter_shingles("") == [""]
    assert np.array_equal(
        signature("Ab cd efgh", "characters"), signature("abcd EFGH", "characters")
    )


def test_letters_without_a_similarity_are_refused() -> None:
    with pytest.raises(
        UsageError, match=r"corpus\.near_duplicates_over=characters: .*such as 0\.5"
    ):
        CorpusConfig(near_duplicates_over="characters").check()


def test_signatures_are_gathered_in_bounded_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document has several partners, so the signatures of all pairs would not fit in memory."""
    rng = random.Random(5)
    path = write(tmp_path / "in", [variant(base, rng, 0.02) for base in [article(rng)] * 60])
    keys = {"near_duplicates": 0.5, "languages": "none"}
    counts = shard(tmp_path / "a", path, **keys)
    assert counts["documents"]["kept"] == 1
    gather, sizes = repeats._gather, []

    def count(group: Group, numbers: Any) -> Any:
        sizes.append(len(numbers))
        return gather(group, numbers)

    monkeypatch.setattr(repeats, "_gather", count)
    monkeypatch.setattr(repeats, "COMPARED_ROWS", 16)
    assert shard(tmp_path / "b", path, **keys) == counts
    assert max(sizes) == 16 and sum(sizes) > 2 * 200
