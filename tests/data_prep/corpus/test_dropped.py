"""The sample of dropped documents: bounded, the same on any division of work, and redacted."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.corpus.build import make_shards
from data_prep.corpus.cache import PieceCache
from data_prep.corpus.dropped import LONGEST, OUTPUT_FILE, SAMPLE, Dropped
from tests.data_prep.small_shards import config_for, document, shard


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Two sources; 60 short documents, 30 of figures and a long one are dropped."""
    rng = random.Random(2)
    root = tmp_path_factory.mktemp("corpus")
    short = [f"no {number}" for number in range(60)]
    figures = [f"{number} 1234 5678 9012 mail bo@example.org" for number in range(30)]
    texts = [*short, *figures, "1 2 3 " * 2000, *(document(rng) for _ in range(80))]
    rng.shuffle(texts)
    for name, own in (("a", texts[:90]), ("b", texts[90:])):
        lines = (json.dumps({"text": text}) + "\n" for text in own)
        (root / f"{name}.jsonl").write_text("".join(lines))
    sources = {name: [str(root / f"{name}.jsonl")] for name in ("a", "b")}
    return {"paths": [], "sources": sources, "min_letters": 0.6, "redact": ["email"]}


def read(out: Path) -> Dropped:
    return Dropped.from_json((out / OUTPUT_FILE).read_text())


def test_the_sample_is_bounded_counted_and_redacted(keys: dict[str, Any], tmp_path: Path) -> None:
    counts = shard(tmp_path, **keys)
    found = read(tmp_path)
    total = sum(found.counts.values(), start=type(found.counts["a"])())
    assert total == counts["documents"]["dropped"] == {"min_characters": 60, "min_letters": 31}
    assert {reason: len(some) for reason, some in found.sample.items()} == {
        "min_characters": SAMPLE,
        "min_letters": SAMPLE,
    }
    documents = [one for some in found.sample.values() for one in some.values()]
    assert all(len(one.text) == min(one.characters, LONGEST) for one in documents)
    assert "bo@example.org" not in (tmp_path / OUTPUT_FILE).read_text()


def test_the_same_bytes_for_any_workers_division_and_from_the_cache(
    keys: dict[str, Any], tmp_path: Path
) -> None:
    cache = PieceCache(
        tmp_path / "cache", {"a/a.jsonl": "1", "b/b.jsonl": "2"}, version=1, most_bytes=10**9
    )
    written = []
    for number, (workers, piece_bytes) in enumerate([(1, 900), (2, 900), (1, 50_000), (1, 900)]):
        out = tmp_path / str(number)
        out.mkdir()
        kept = cache if piece_bytes == 900 and workers == 1 else None
        make_shards(config_for(**keys, workers=workers), out, piece_bytes, kept)
        written.append((out / OUTPUT_FILE).read_bytes())
    assert len(set(written)) == 1 and len(list((tmp_path / "cache").iterdir())) > 3


@given(st.lists(st.tuples(st.sampled_from("ab"), st.text("xyz", max_size=4)), max_size=60))
def test_the_sample_does_not_depend_on_how_it_was_joined(drops: list[tuple[str, str]]) -> None:
    whole, left, right = Dropped(), Dropped(), Dropped()
    for number, (reason, text) in enumerate(drops):
        for each in (whole, left if number < len(drops) // 2 else right):
            each.add(reason, "f", str(number), text)
    left.update(Dropped.from_json(right.as_json()))
    assert left.as_json() == whole.as_json()
