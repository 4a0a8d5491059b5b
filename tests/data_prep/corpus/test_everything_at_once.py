"""Redaction, decontamination, filters, a hook and near-duplicates together keep the promises.

The same bytes on any number of workers, after kills and from the cache; counters balance.
"""

import json
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from data_prep.corpus.build import make_shards
from data_prep.corpus.cache import PieceCache
from data_prep.corpus.dropped import OUTPUT_FILE, SAMPLE, Dropped
from tests.data_prep.corpus.test_reprints import article, scan
from tests.data_prep.small_shards import config_for, digests, kill_at_rename

PIECE_BYTES = 8000
HOOK = """\
from data_prep.corpus.hook import Drop

def keep(text, facts):
    if int(facts.id) % 17 == 0:
        return Drop("seventeenth")
    return text + " Signed by the editor." if int(facts.id) % 5 == 0 else None
"""


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    rng = random.Random(4)
    root = tmp_path_factory.mktemp("all")
    tests = [article(rng, 20) for _ in range(10)]
    texts = [
        "\n\n".join([article(rng, 70), f"Mail name{number}@example.org or Ann. {article(rng, 30)}"])
        for number in range(120)
    ]
    texts += [scan(text, rng) for text in texts[:20]]
    texts += [f"{text}\n\n{test}" for text, test in zip(texts[30:40], tests, strict=True)]
    texts += [*tests[:3], "too short", "12 34 " * 20, "one line " * 30, texts[50]]
    rng.shuffle(texts)
    records = [
        {"id": str(n), "text": text, "score": n % 10, "patient": f"p{n % 40}"}
        for n, text in enumerate(texts)
    ]
    for name, own in (("a", records[:80]), ("b", records[80:])):
        (root / f"{name}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in own))
    (root / "dev.txt").write_text("\n".join(tests))
    (root / "names.txt").write_text("Ann\n")
    (root / "my_editor.py").write_text(HOOK)
    return {
        "sources": {name: [str(root / f"{name}.jsonl")] for name in ("a", "b")},
        "paths": [],
        "group_field": "patient",
        "where": {"score": "1..9"},
        "redact": ["email", "phone", "id", "ip"],
        "redact_names_file": str(root / "names.txt"),
        "redact_patterns": {"CODE": "K-[0-9]+"},
        "decontaminate": [str(root / "dev.txt")],
        "filters": ["gopher", "fineweb"],
        "thresholds": {"gopher_min_words": 30, "gopher_min_stop_words": None},
        "hook": "my_editor.keep",
        "near_duplicates": 0.5,
        "near_duplicates_over": "characters",
        "shard_size": 20_000,
    }


@pytest.fixture(autouse=True)
def importable(keys: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(keys["redact_names_file"]).parent)


@pytest.fixture(scope="module")
def reference(
    keys: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("reference")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(keys["redact_names_file"]).parent)
        return out, make_shards(config_for(**keys), out, PIECE_BYTES)


def test_every_step_took_something_and_counters_balance(
    reference: tuple[Path, dict[str, Any]],
) -> None:
    out, counts = reference
    documents = counts["documents"]
    assert documents["read"] == documents["kept"] + sum(documents["dropped"].values())
    taken = {"where", "hook_seventeenth", "decontaminate", "near_duplicate", "min_characters"}
    assert taken <= documents["dropped"].keys()
    assert documents["repaired"]["decontaminated"] > 0
    assert counts["redacted"].keys() == {"EMAIL", "NAME"}
    found = Dropped.from_json((out / OUTPUT_FILE).read_text())
    assert sum(found.counts.values(), start=Counter()) == documents["dropped"]
    unread = {"where", "duplicate"}
    for reason in documents["dropped"].keys() - unread:
        assert len(found.sample[reason]) == min(documents["dropped"][reason], SAMPLE)
    assert all("[EMAIL]" in one.text for one in found.sample["near_duplicate"].values())


def test_two_workers_write_the_same_bytes(
    keys: dict[str, Any], reference: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    assert make_shards(config_for(**keys, workers=2), tmp_path, PIECE_BYTES) == reference[1]
    assert digests(tmp_path) == digests(reference[0])


def test_the_cache_gives_the_same_bytes(
    keys: dict[str, Any], reference: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    checksums = {"a/a.jsonl": "1", "b/b.jsonl": "2"}
    cache = PieceCache(tmp_path / "cache", checksums, version=1, most_bytes=10**9)
    for name in ("made", "taken"):
        (tmp_path / name).mkdir()
        assert make_shards(config_for(**keys), tmp_path / name, PIECE_BYTES, cache) == reference[1]
        assert digests(tmp_path / name) == digests(reference[0])
    other = PieceCache(tmp_path / "cache", {**checksums, "corpus.hook": "3"}, 1, 10**9)
    config = config_for(**keys)
    [part, *_] = [task.parts for task in plan(config, cache)]
    assert cache.has(cache.key(part, config)) and not other.has(other.key(part, config))


def plan(config: Any, cache: PieceCache) -> list[Any]:
    from data_prep.corpus.clean import plan_cleaning
    from data_prep.reading.sources import survey

    return plan_cleaning(survey(config.paths, config.sources).files, config, PIECE_BYTES, cache)


def test_a_killed_stage_ends_up_with_the_same_bytes(
    keys: dict[str, Any], reference: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    hooks = str(Path(keys["redact_names_file"]).parent)
    for renames in (4, 12):
        assert kill_at_rename(tmp_path, renames, keys, PIECE_BYTES, hooks) == -signal.SIGKILL
    assert make_shards(config_for(**keys), tmp_path, PIECE_BYTES) == reference[1]
    assert digests(tmp_path) == digests(reference[0])
